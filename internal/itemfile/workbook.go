package itemfile

import (
	"archive/zip"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// Limits of a spreadsheet, of which the texts are held in memory, and within a
// .gz the file: a ZIP archive is read from its end. A million rows, which is all
// that a sheet can have, of a dozen columns unpack to less than this.
const (
	sheetFileBytesMax     = 64 << 20
	sheetUnpackedBytesMax = 1 << 30
	sheetTextBytesMax     = 64 << 20
)

var (
	errSheetTooLarge = fmt.Errorf("the spreadsheet is larger than %d bytes when it is unpacked", sheetUnpackedBytesMax)
	errSheetTexts    = fmt.Errorf("the spreadsheet has more than %d bytes of texts; a .csv may have more", sheetTextBytesMax)
	errNotSheet      = errors.New("this is not a spreadsheet of the format .xlsx, or it is broken or cut off")
)

// workbook is an opened spreadsheet of the format .xlsx (ECMA-376): what its
// cells stand on.
type workbook struct {
	parts      map[string]*zip.File // by their names in lower case
	left       int64                // bytes that may still be unpacked
	sheet      string               // the part of the first visible sheet; empty for none
	isDate1904 bool
	texts      []string // which cells refer to by number
	dateStyles []bool   // by number: cells of this style show a date
}

// openWorkbook reads everything but the cells. Errors are errNotSheet,
// errSheetTooLarge, errSheetTexts or those of the parsers.
func openWorkbook(content io.ReaderAt, size int64) (*workbook, error) {
	archive, err := zip.NewReader(content, size)
	if err != nil {
		return nil, errNotSheet
	}
	b := &workbook{parts: make(map[string]*zip.File, len(archive.File)), left: sheetUnpackedBytesMax}
	for _, part := range archive.File {
		b.parts[strings.ToLower(part.Name)] = part
	}
	main := "xl/workbook.xml"
	roots, err := b.relationships("")
	if err != nil {
		return nil, err
	}
	for _, r := range roots {
		if r.is("officeDocument") {
			main = r.part("")
		}
	}
	return b, b.read(main)
}

// read reads the main part and those that it refers to.
func (b *workbook) read(main string) error {
	var book struct {
		Properties struct {
			Date1904 string `xml:"date1904,attr"`
		} `xml:"workbookPr"`
		Sheets []struct {
			State string `xml:"state,attr"`
			ID    string `xml:"id,attr"`
		} `xml:"sheets>sheet"`
	}
	if err := b.decode(main, &book); err != nil {
		return err
	}
	b.isDate1904 = book.Properties.Date1904 == "1" || book.Properties.Date1904 == "true"
	relations, err := b.relationships(main)
	if err != nil {
		return err
	}
	for _, sheet := range book.Sheets {
		i := slices.IndexFunc(relations, func(r relationship) bool { return r.ID == sheet.ID && r.is("worksheet") })
		if i >= 0 && (sheet.State == "" || sheet.State == "visible") {
			b.sheet = relations[i].part(main)
			break
		}
	}
	for _, r := range relations {
		switch {
		case r.is("sharedStrings"):
			err = b.readTexts(r.part(main))
		case r.is("styles"):
			err = b.readStyles(r.part(main))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// relationship leads from one part to another.
type relationship struct {
	ID     string `xml:"Id,attr"`
	Type   string `xml:"Type,attr"`
	Target string `xml:"Target,attr"`
}

// is reports whether it leads to a part of a kind, in either edition of the format.
func (r relationship) is(kind string) bool { return strings.HasSuffix(r.Type, "/"+kind) }

// part is the name of the part that it leads to from the given one.
func (r relationship) part(from string) string {
	if absolute, ok := strings.CutPrefix(r.Target, "/"); ok {
		return absolute
	}
	return path.Join(path.Dir(from), r.Target)
}

// relationships are those of a part; of the whole for the empty name.
func (b *workbook) relationships(of string) ([]relationship, error) {
	name := path.Join(path.Dir(of), "_rels", path.Base(of)+".rels")
	if of == "" {
		name = "_rels/.rels"
	}
	var list struct {
		Items []relationship `xml:"Relationship"`
	}
	return list.Items, b.decode(name, &list)
}

func (b *workbook) decode(name string, into any) error {
	part, err := b.open(name)
	if err != nil {
		return err
	}
	return errors.Join(xml.NewDecoder(part).Decode(into), part.Close())
}

// open begins to unpack a part.
func (b *workbook) open(name string) (io.ReadCloser, error) {
	part, ok := b.parts[strings.ToLower(name)]
	if !ok {
		return nil, errNotSheet
	}
	if part.UncompressedSize64 > uint64(b.left) {
		return nil, errSheetTooLarge
	}
	content, err := part.Open()
	if err != nil {
		return nil, errNotSheet
	}
	return &unpacking{ReadCloser: content, book: b}, nil
}

// unpacking bounds what is unpacked in all, whatever the archive announces.
type unpacking struct {
	io.ReadCloser
	book *workbook
}

// Read implements io.Reader.
func (u *unpacking) Read(p []byte) (int, error) {
	if u.book.left <= 0 {
		return 0, errSheetTooLarge
	}
	n, err := u.ReadCloser.Read(p[:min(int64(len(p)), u.book.left)])
	u.book.left -= int64(n)
	return n, err
}

// readTexts reads the texts that cells share.
func (b *workbook) readTexts(name string) error {
	part, err := b.open(name)
	if err != nil {
		return err
	}
	decoder := xml.NewDecoder(part)
	for size := 0; ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return part.Close()
		}
		if err != nil {
			return errors.Join(err, part.Close())
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "si" {
			var text richText
			if err := decoder.DecodeElement(&text, &start); err != nil {
				return errors.Join(err, part.Close())
			}
			b.texts = append(b.texts, text.String())
			if size += len(b.texts[len(b.texts)-1]); size > sheetTextBytesMax {
				return errors.Join(errSheetTexts, part.Close())
			}
		}
	}
}

// richText is a text, or pieces of one that look different.
type richText struct {
	Text   string   `xml:"t"`
	Pieces []string `xml:"r>t"`
}

func (t *richText) String() string { return unescapeSheet(t.Text + strings.Join(t.Pieces, "")) }

// readStyles finds the styles that show a number as a date.
func (b *workbook) readStyles(name string) error {
	var styles struct {
		Formats []struct {
			ID   int    `xml:"numFmtId,attr"`
			Code string `xml:"formatCode,attr"`
		} `xml:"numFmts>numFmt"`
		Cells []struct {
			FormatID int `xml:"numFmtId,attr"`
		} `xml:"cellXfs>xf"`
	}
	if err := b.decode(name, &styles); err != nil {
		return err
	}
	dates := map[int]bool{}
	for _, builtIn := range [...][2]int{{14, 22}, {27, 36}, {50, 58}} { // the last two are those of East Asia (ECMA-376, 18.8.30)
		for id := builtIn[0]; id <= builtIn[1]; id++ {
			dates[id] = true
		}
	}
	for _, f := range styles.Formats {
		dates[f.ID] = isDateFormat(f.Code)
	}
	for _, cell := range styles.Cells {
		b.dateStyles = append(b.dateStyles, dates[cell.FormatID])
	}
	return nil
}

// isDateFormat reports whether a number format such as dd/mm/yyyy shows a date:
// it names days or years outside of its literal texts.
func isDateFormat(code string) bool {
	for i := 0; i < len(code); i++ {
		switch code[i] {
		case '\\', '_', '*':
			i++ // the next character is meant as it is
		case '"':
			i = closing(code, i, '"')
		case '[':
			i = closing(code, i, ']')
		case ';':
			return false // what follows is for negative numbers and texts
		case 'd', 'D', 'y', 'Y':
			return true
		}
	}
	return false
}

// closing is the position of the closing character after i, or the last one.
func closing(code string, i int, character byte) int {
	if n := strings.IndexByte(code[i+1:], character); n >= 0 {
		return i + 1 + n
	}
	return len(code)
}
