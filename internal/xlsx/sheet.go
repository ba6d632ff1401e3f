// Package xlsx reads the rows of the first visible sheet of a spreadsheet of the
// format .xlsx (ECMA-376). It streams the rows, keeps the exact digits of numbers
// and stays within the limits below.
//
// The package is pure. It must not know the meaning of a row.
package xlsx

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of a spreadsheet. Shared texts are held in memory. A million rows of a
// dozen columns, the most that a sheet can have, unpack to less than
// unpackedBytesMax.
const (
	// FileBytesMax is the size of the packed file.
	FileBytesMax     = 64 << 20
	unpackedBytesMax = 1 << 30
	textBytesMax     = 64 << 20 // of the shared texts
	rowsMax          = 1 << 20  // by the format
	columnsMax       = 1 << 14  // by the format
)

// FormatError says why a file cannot be read as a spreadsheet. Its text is safe
// to show.
type FormatError struct{ reason string }

func (e *FormatError) Error() string { return e.reason }

// Errors of a whole file.
var (
	ErrFormat = &FormatError{"this is not a spreadsheet of the format .xlsx, or it is broken or cut off"}

	errEmpty       = &FormatError{"the file is empty"}
	errFileSize    = &FormatError{fmt.Sprintf("the spreadsheet is larger than %d bytes; use a .csv instead", FileBytesMax)}
	errProtected   = &FormatError{"the spreadsheet is protected by a password, or has the old format .xls; save it as .xlsx without a password"}
	errNoSheet     = &FormatError{"the spreadsheet has no visible sheet"}
	errUnpackedMax = &FormatError{fmt.Sprintf("the unpacked spreadsheet is larger than %d bytes", unpackedBytesMax)}
	errTextsMax    = &FormatError{fmt.Sprintf("the texts of the spreadsheet are larger than %d bytes; use a .csv instead", textBytesMax)}
)

// CellError says why a cell has no value. The rows after it can be read.
type CellError struct {
	Column int // from 0
	reason string
}

func (e *CellError) Error() string { return e.reason }

// Sheet reads the rows of the first visible sheet, from top to bottom.
type Sheet struct {
	book *workbook
	part io.ReadCloser
	xml  *xml.Decoder
	row  int
	// cells are those of the last row.
	cells []Cell
	// fault is the error of the first bad cell of the row, or nil.
	fault *CellError
}

// Open reads everything but the rows. A *FormatError says that the file is no
// spreadsheet that can be read. Any other error comes from the content or from a
// decoder that found it broken.
func Open(content io.ReaderAt, size int64) (*Sheet, error) {
	var first [4]byte
	if _, err := content.ReadAt(first[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case size == 0:
		return nil, errEmpty
	case size > FileBytesMax:
		return nil, errFileSize
	case string(first[:]) == "\xD0\xCF\x11\xE0": // a compound file, [MS-CFB]
		return nil, errProtected
	}
	book, err := openWorkbook(content, size)
	if err != nil {
		return nil, err
	}
	if book.sheet == "" {
		return nil, errNoSheet
	}
	part, err := book.open(book.sheet)
	if err != nil {
		return nil, err
	}
	return &Sheet{book: book, part: part, xml: xml.NewDecoder(part)}, nil
}

// Close ends the unpacking.
func (s *Sheet) Close() error { return s.part.Close() }

// Row returns the number of the last row; the first row of the sheet is 1.
func (s *Sheet) Row() int { return s.row }

// Next returns the cells of the next row that is not empty, or io.EOF. The cells
// are valid until the next call. A *CellError comes with the cells of its row.
func (s *Sheet) Next() ([]Cell, error) {
	isEnd, err := s.readToRow()
	switch {
	case errors.Is(err, io.EOF): // within the sheet
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	case isEnd:
		return nil, io.EOF
	case s.fault != nil:
		return s.cells, s.fault
	default:
		return s.cells, nil
	}
}

// readToRow reads the next row that has a value or a fault.
func (s *Sheet) readToRow() (isEnd bool, err error) {
	for {
		token, err := s.xml.Token()
		if err != nil {
			return false, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			if t.Name.Local != "row" {
				continue
			}
			if err := s.readRow(t); err != nil {
				return false, err
			}
			if !s.isEmpty() {
				return false, nil
			}
		case xml.EndElement:
			if t.Name.Local == "sheetData" {
				_, err := io.Copy(io.Discard, s.part) // to its end, where the archive's checksum is compared
				return true, err
			}
		}
	}
}

// isEmpty reports whether the last row has neither a value nor a fault.
func (s *Sheet) isEmpty() bool {
	return s.fault == nil && !slices.ContainsFunc(s.cells, func(c Cell) bool { return c.Text != "" })
}

// Time returns the time that the sheet stores as this number of days.
func (s *Sheet) Time(days string) (time.Time, bool) { return timeOf(days, s.book.isDate1904) }

// readRow reads the cells of a row.
func (s *Sheet) readRow(start xml.StartElement) error {
	number, err := strconv.Atoi(attribute(start, "r", strconv.Itoa(s.row+1)))
	if err != nil || number <= s.row || number > rowsMax {
		return ErrFormat
	}
	s.cells, s.fault = s.cells[:0], nil
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

func (s *Sheet) readCell(start xml.StartElement) error {
	at := len(s.cells)
	if reference := attribute(start, "r", ""); reference != "" {
		at = columnOf(reference)
	}
	if at < len(s.cells) || at >= columnsMax {
		return ErrFormat
	}
	var content struct {
		Formula *string   `xml:"f"`
		Value   *string   `xml:"v"`
		Text    *richText `xml:"is"`
	}
	if err := s.xml.DecodeElement(&content, &start); err != nil {
		return err
	}
	for len(s.cells) < at { // the file leaves out empty cells
		s.cells = append(s.cells, Cell{})
	}
	var cell Cell
	fault := ""
	switch {
	case content.Text != nil:
		cell.Text = content.Text.String()
	case content.Value != nil:
		cell, fault = s.book.cellOf(*content.Value, attribute(start, "t", "n"), attribute(start, "s", ""))
	case content.Formula != nil:
		fault = "is a formula whose result is not stored; save the file with a spreadsheet program"
	}
	if fault != "" && s.fault == nil {
		s.fault = &CellError{Column: at, reason: fault}
	}
	s.cells = append(s.cells, cell)
	return nil
}

// columnOf returns the column of a reference such as AB12, from 0.
func columnOf(reference string) int {
	column := 0
	for _, c := range strings.ToUpper(reference) {
		if c < 'A' || c > 'Z' || column > columnsMax {
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
