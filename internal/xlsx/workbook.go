package xlsx

import (
	"archive/zip"
	"encoding/xml"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
)

// workbook is the archive of a spreadsheet and the parts that all cells use.
type workbook struct {
	parts      map[string]*zip.File // by name in lower case
	left       int64                // bytes that may still be unpacked
	sheet      string               // the part of the first visible sheet; empty if there is none
	isDate1904 bool
	texts      []string // shared texts; cells refer to them by number
	dateStyles []bool   // by style number: cells of the style show a date
}

// openWorkbook reads all parts except the sheets.
func openWorkbook(content io.ReaderAt, size int64) (*workbook, error) {
	archive, err := zip.NewReader(content, size)
	if err != nil {
		return nil, ErrFormat
	}
	b := &workbook{parts: make(map[string]*zip.File, len(archive.File)), left: unpackedBytesMax}
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

// read reads the main part and the parts that it refers to.
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

// is reports whether the relationship leads to a part of a kind, in either edition
// of the format.
func (r relationship) is(kind string) bool { return strings.HasSuffix(r.Type, "/"+kind) }

// part returns the name of the target; from is the part with the relationship.
func (r relationship) part(from string) string {
	if absolute, ok := strings.CutPrefix(r.Target, "/"); ok {
		return absolute
	}
	return path.Join(path.Dir(from), r.Target)
}

// relationships returns those of a part. The empty name means the whole archive.
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
		return nil, ErrFormat
	}
	if part.UncompressedSize64 > uint64(b.left) {
		return nil, errUnpackedMax
	}
	content, err := part.Open()
	if err != nil {
		return nil, ErrFormat
	}
	return &unpacking{ReadCloser: content, book: b}, nil
}

// unpacking limits the total size of unpacked data. It does not trust the sizes in the
// archive.
type unpacking struct {
	io.ReadCloser
	book *workbook
}

// Read implements io.Reader.
func (u *unpacking) Read(p []byte) (int, error) {
	if u.book.left <= 0 {
		return 0, errUnpackedMax
	}
	n, err := u.ReadCloser.Read(p[:min(int64(len(p)), u.book.left)])
	u.book.left -= int64(n)
	return n, err
}

// readTexts reads the shared texts.
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
			if size += len(b.texts[len(b.texts)-1]); size > textBytesMax {
				return errors.Join(errTextsMax, part.Close())
			}
		}
	}
}

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
	for _, builtIn := range [...][2]int{{14, 22}, {27, 36}, {50, 58}} { // the last two are East Asian (ECMA-376, 18.8.30)
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

// isDateFormat reports whether a number format such as dd/mm/yyyy shows a date. It
// does if it names days or years outside of literal texts.
func isDateFormat(code string) bool {
	for i := 0; i < len(code); i++ {
		switch code[i] {
		case '\\', '_', '*':
			i++ // the next character is literal
		case '"':
			i = closing(code, i, '"')
		case '[':
			i = closing(code, i, ']')
		case ';':
			return false // the rest is for negative numbers and texts
		case 'd', 'D', 'y', 'Y':
			return true
		}
	}
	return false
}

// closing returns the position of the closing character after i, or the length of
// the code.
func closing(code string, i int, character byte) int {
	if n := strings.IndexByte(code[i+1:], character); n >= 0 {
		return i + 1 + n
	}
	return len(code)
}
