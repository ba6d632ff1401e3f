package itemfile

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/internal/exactjson"
)

const (
	// Limits of a sheet by its format.
	sheetRowsMax    = 1 << 20
	sheetColumnsMax = 1 << 14
	// numberDigitsMax is to how many significant digits a spreadsheet shows a
	// number. It keeps more, which are the rounding errors of binary fractions.
	numberDigitsMax = 15
)

// sheet reads the rows of the first visible sheet of a spreadsheet.
type sheet struct {
	*file
	book   *workbook
	part   io.ReadCloser
	xml    *xml.Decoder
	header []string
	row    int
	cells  []string
	kinds  []cellKind // of the cells
	// fault is why the row can not be read, naming the first such cell.
	fault       string
	faultColumn int
}

// cellKind is what a cell holds.
type cellKind byte

const (
	cellText cellKind = iota
	cellNumber
	cellDate // a number that is shown as a date
)

// openSheet reads the header of a spreadsheet. Faults of the file are
// *Error; other errors are the source's own.
func openSheet(f *file) (*sheet, error) {
	content, size, err := f.whole(sheetFileBytesMax)
	if err != nil {
		return nil, f.broken(err, 0)
	}
	var first [4]byte
	if _, err := content.ReadAt(first[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, f.broken(err, 0)
	}
	switch {
	case size == 0:
		return nil, &Error{File: f.name, Reason: "the file is empty"}
	case size > sheetFileBytesMax:
		return nil, &Error{File: f.name, Reason: fmt.Sprintf("a spreadsheet has at most %d bytes; a .csv may have more", sheetFileBytesMax)}
	case string(first[:]) == "\xD0\xCF\x11\xE0": // a compound file, [MS-CFB]
		return nil, &Error{File: f.name, Reason: "the spreadsheet is protected by a password, or is of the old format .xls"}
	}
	s := &sheet{file: f}
	if s.book, err = openWorkbook(content, size); err != nil {
		return nil, s.broken(err)
	}
	if s.book.sheet == "" {
		return nil, &Error{File: s.name, Reason: "the spreadsheet has no visible sheet"}
	}
	if s.part, err = s.book.open(s.book.sheet); err != nil {
		return nil, s.broken(err)
	}
	s.xml = xml.NewDecoder(s.part)
	if err := s.readHeader(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *sheet) readHeader() error {
	cells, err := s.next()
	if errors.Is(err, io.EOF) {
		return &Error{File: s.name, Reason: "the first visible sheet is empty; its first row must name the columns"}
	}
	if broken, ok := errors.AsType[*rowError](err); ok {
		return &Error{File: s.name, Row: s.row, Reason: "column " + strconv.Itoa(s.faultColumn+1) + " " + broken.reason}
	}
	if err != nil {
		return err
	}
	s.header, err = headerOf(s.file, s.row, cells)
	return err
}

// names implements rowReader.
func (s *sheet) names() []string { return s.header }

// line implements rowReader.
func (s *sheet) line() int { return s.row }

// Close ends the unpacking.
func (s *sheet) Close() error {
	if err := s.part.Close(); err != nil {
		return fmt.Errorf("close %s: %w", s.name, err)
	}
	return nil
}

// next implements rowReader.
func (s *sheet) next() ([]string, error) {
	for {
		token, err := s.xml.Token()
		if err != nil {
			return nil, s.broken(err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if t.Name.Local != "row" {
				continue
			}
			if err := s.readRow(t); err != nil {
				return nil, s.broken(err)
			}
			if cells, err := s.take(); cells != nil || err != nil {
				return cells, err
			}
		case xml.EndElement:
			if t.Name.Local == "sheetData" {
				return nil, s.end()
			}
		}
	}
}

// take returns the row that was read unless it is empty.
func (s *sheet) take() ([]string, error) {
	if s.fault != "" {
		broken := &rowError{reason: s.fault}
		if s.faultColumn < len(s.header) {
			broken.column = s.header[s.faultColumn]
		}
		return s.cells, broken
	}
	if !slices.ContainsFunc(s.cells, func(cell string) bool { return cell != "" }) {
		return nil, nil
	}
	for len(s.cells) < len(s.header) { // empty cells at the end of a row are not stored
		s.cells, s.kinds = append(s.cells, ""), append(s.kinds, cellText)
	}
	return s.cells, nil
}

// end reads what follows the rows, so that the archive's checksum is compared.
func (s *sheet) end() error {
	if _, err := io.Copy(io.Discard, s.part); err != nil {
		return s.broken(err)
	}
	return io.EOF
}

// readRow reads the cells of a row.
func (s *sheet) readRow(start xml.StartElement) error {
	number, err := strconv.Atoi(attribute(start, "r", strconv.Itoa(s.row+1)))
	if err != nil || number <= s.row || number > sheetRowsMax {
		return errNotSheet
	}
	s.cells, s.kinds, s.fault = s.cells[:0], s.kinds[:0], ""
	for {
		token, err := s.xml.Token()
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.EndElement:
			s.row = number
			return nil
		case xml.StartElement:
			if t.Name.Local != "c" {
				err = s.xml.Skip()
			} else {
				err = s.readCell(t)
			}
			if err != nil {
				return err
			}
		}
	}
}

// readCell reads one cell of the row.
func (s *sheet) readCell(start xml.StartElement) error {
	at := len(s.cells)
	if reference := attribute(start, "r", ""); reference != "" {
		at = columnOf(reference)
	}
	if at < len(s.cells) || at >= sheetColumnsMax {
		return errNotSheet
	}
	var content struct {
		Formula *string   `xml:"f"`
		Value   *string   `xml:"v"`
		Text    *richText `xml:"is"`
	}
	if err := s.xml.DecodeElement(&content, &start); err != nil {
		return err
	}
	for len(s.cells) < at {
		s.cells, s.kinds = append(s.cells, ""), append(s.kinds, cellText)
	}
	text, kind, fault := "", cellText, ""
	switch {
	case content.Text != nil:
		text = content.Text.String()
	case content.Value != nil:
		text, kind, fault = s.valueOf(*content.Value, attribute(start, "t", "n"), attribute(start, "s", ""))
	case content.Formula != nil:
		fault = "is a formula whose result is not stored; save the file with a spreadsheet program"
	}
	if fault != "" && s.fault == "" {
		s.fault, s.faultColumn = fault, at
	}
	s.cells, s.kinds = append(s.cells, text), append(s.kinds, kind)
	return nil
}

// valueOf reads a stored value of a type of cell and a style.
func (s *sheet) valueOf(value, cellType, style string) (text string, kind cellKind, fault string) {
	switch cellType {
	case "s":
		if i, err := strconv.Atoi(value); err == nil && i >= 0 && i < len(s.book.texts) {
			return s.book.texts[i], cellText, ""
		}
		return "", cellText, "is a text that the file does not hold"
	case "b":
		return strings.ToUpper(strconv.FormatBool(value == "1" || value == "true")), cellText, ""
	case "e":
		return "", cellText, "is an error of the spreadsheet, such as #REF! or #N/A"
	case "n":
		if i, err := strconv.Atoi(style); err == nil && i >= 0 && i < len(s.book.dateStyles) && s.book.dateStyles[i] {
			return value, cellDate, ""
		}
		return shownNumber(value), cellNumber, ""
	case "d":
		return strings.TrimSuffix(value, "T00:00:00"), cellText, ""
	default:
		return unescapeSheet(value), cellText, ""
	}
}

// adjust writes a stored number as the text it stands for: a time, which is
// stored as a number of days, where the property is a date or the cell shows
// one; true and false where the property is boolean.
func (s *sheet) adjust(cell string, c *column) string {
	kind := s.kinds[c.position]
	isDate := c.format == "date" || c.format == "date-time"
	switch {
	case kind == cellText:
		return cell
	case c.types.has(typeBoolean) && (cell == "0" || cell == "1"):
		return strconv.FormatBool(cell == "1")
	case !isDate && (kind == cellNumber || c.types.has(typeNumber)):
		return cell
	}
	at, ok := timeOf(cell, s.book.isDate1904)
	switch {
	case !ok:
		return cell
	case c.format == "date", c.format == "" && at.Equal(at.Truncate(24*time.Hour)):
		return at.Format(time.DateOnly)
	default:
		return at.Format(time.RFC3339)
	}
}

// timeOf is the time that a spreadsheet keeps as a number of days. By mistake
// its calendar has a 29 February 1900, which is no time.
func timeOf(cell string, isDate1904 bool) (time.Time, bool) {
	const dayOfMistake, daysMax = 60, 2958466 // 9999-12-31
	days, err := strconv.ParseFloat(cell, 64)
	if err != nil || math.IsNaN(days) || days < 0 || days >= daysMax || !isDate1904 && math.Floor(days) == dayOfMistake {
		return time.Time{}, false
	}
	first := time.Date(1899, 12, 30, 0, 0, 0, 0, time.UTC)
	if isDate1904 {
		first = time.Date(1904, 1, 1, 0, 0, 0, 0, time.UTC)
	} else if days < dayOfMistake {
		first = first.AddDate(0, 0, 1)
	}
	whole, part := math.Modf(days)
	return first.AddDate(0, 0, int(whole)).Add(time.Duration(math.Round(part*86400)) * time.Second), true
}

// shownNumber writes a stored number for people. One that has a binary fraction's
// digits is rounded to those that a spreadsheet shows: 0.28999999999999998 is 0.29;
// longer ones are texts. An exponent, of 1E-3 say, is how the file keeps a number
// and not how it was typed, so it is written out.
func shownNumber(cell string) string {
	mantissa, _, hasExponent := strings.Cut(strings.ToLower(cell), "e")
	digits := len(strings.TrimLeft(strings.NewReplacer("-", "", ".", "").Replace(mantissa), "0"))
	isBinary := digits > numberDigitsMax && strings.Contains(cell, ".")
	if digits > numberDigitsMax+2 || !isBinary && !hasExponent {
		return cell
	}
	value, err := strconv.ParseFloat(cell, 64)
	if err != nil {
		return cell
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(value, 'g', numberDigitsMax, 64), 64)
	if err != nil {
		return cell
	}
	shown := strconv.FormatFloat(rounded, 'f', -1, 64)
	if len(shown) > exactjson.DigitsMax {
		return cell
	}
	return shown
}

// columnOf is the column that a reference such as AB12 names, from 0.
func columnOf(reference string) int {
	column := 0
	for _, c := range strings.ToUpper(reference) {
		if c < 'A' || c > 'Z' || column > sheetColumnsMax {
			break
		}
		column = column*26 + int(c-'A') + 1
	}
	return column - 1
}

func attribute(start xml.StartElement, name, otherwise string) string {
	for _, a := range start.Attr {
		if a.Name.Local == name && a.Name.Space == "" {
			return a.Value
		}
	}
	return otherwise
}

var sheetEscape = regexp.MustCompile(`_x[0-9A-Fa-f]{4}_`)

// unescapeSheet reads characters that XML can not hold, written as _x000D_.
func unescapeSheet(text string) string {
	if !strings.Contains(text, "_x") {
		return text
	}
	return sheetEscape.ReplaceAllStringFunc(text, func(escape string) string {
		code, err := strconv.ParseUint(escape[2:6], 16, 16)
		if err != nil {
			return escape
		}
		return string(rune(code))
	})
}

// broken is file.broken for errors of the spreadsheet's reader.
func (s *sheet) broken(err error) error {
	failed := s.file.broken(err, s.row)
	if broken, ok := errors.AsType[*Error](failed); ok {
		switch {
		case errors.Is(err, errSheetTooLarge), errors.Is(err, errSheetTexts):
			broken.Row, broken.Reason = 0, err.Error()
		case s.row == 0:
			broken.Reason = errNotSheet.Error()
		default:
			broken.Row, broken.Reason = s.row+1, "the sheet is broken from here on"
		}
	}
	return failed
}
