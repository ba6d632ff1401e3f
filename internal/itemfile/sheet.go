package itemfile

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"tranche/internal/xlsx"
)

// sheet reads the rows of a spreadsheet as those of a table.
type sheet struct {
	*file
	rows   *xlsx.Sheet
	header []string
	cells  []xlsx.Cell // of the last row
	texts  []string    // of the cells
}

// openSheet reads the header of a spreadsheet. Faults of the file are *Error; other
// errors come from the source.
func openSheet(f *file) (*sheet, error) {
	content, size, err := f.whole(xlsx.FileBytesMax)
	if err != nil {
		return nil, f.broken(err, 0)
	}
	s := &sheet{file: f}
	if s.rows, err = xlsx.Open(content, size); err != nil {
		return nil, s.broken(err)
	}
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
		return &Error{File: s.name, Row: s.line(), Reason: "column " + broken.column + " " + broken.reason}
	}
	if err != nil {
		return err
	}
	s.header, err = headerOf(s.file, s.line(), cells)
	return err
}

// names implements rowReader.
func (s *sheet) names() []string { return s.header }

// line implements rowReader.
func (s *sheet) line() int { return s.rows.Row() }

// Close ends the unpacking.
func (s *sheet) Close() error {
	if err := s.rows.Close(); err != nil {
		return fmt.Errorf("close %s: %w", s.name, err)
	}
	return nil
}

// next implements rowReader.
func (s *sheet) next() ([]string, error) {
	cells, err := s.rows.Next()
	fault, isCell := errors.AsType[*xlsx.CellError](err)
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil && !isCell {
		return nil, s.broken(err)
	}
	s.cells, s.texts = cells, s.texts[:0]
	for _, cell := range cells {
		s.texts = append(s.texts, cell.Text)
	}
	if !isCell {
		for len(s.texts) < len(s.header) { // the file leaves out empty cells at the end
			s.texts = append(s.texts, "")
		}
		return s.texts, nil
	}
	broken := &rowError{reason: fault.Error()}
	switch {
	case s.header == nil:
		broken.column = strconv.Itoa(fault.Column + 1)
	case fault.Column < len(s.header):
		broken.column = s.header[fault.Column]
	}
	return s.texts, broken
}

// adjust writes a stored number as the text that the property needs. A number of
// days becomes a date if the property is a date or the cell shows one; 0 and 1 become
// false and true if the property is boolean.
func (s *sheet) adjust(text string, c *column) string {
	kind := s.cells[c.position].Kind
	isDate := c.format == "date" || c.format == "date-time"
	switch {
	case kind == xlsx.Text:
		return text
	case c.types.has(typeBoolean) && (text == "0" || text == "1"):
		return strconv.FormatBool(text == "1")
	case !isDate && (kind == xlsx.Number || c.types.has(typeNumber)):
		return text
	}
	at, ok := s.rows.Time(text)
	switch {
	case !ok:
		return text
	case c.format == "date", c.format == "" && at.Equal(at.Truncate(24*time.Hour)):
		return at.Format(time.DateOnly)
	default:
		return at.Format(time.RFC3339)
	}
}

// broken is file.broken for errors of the spreadsheet's reader.
func (s *sheet) broken(err error) error {
	row := 0
	if s.rows != nil {
		row = s.line()
	}
	failed := s.file.broken(err, row)
	if broken, ok := errors.AsType[*Error](failed); ok {
		switch format, isFormat := errors.AsType[*xlsx.FormatError](err); {
		case isFormat && (format != xlsx.ErrFormat || row == 0):
			broken.Row, broken.Reason = 0, format.Error()
		case row == 0:
			broken.Reason = xlsx.ErrFormat.Error()
		default:
			broken.Row, broken.Reason = row+1, "the sheet is broken from here on"
		}
	}
	return failed
}
