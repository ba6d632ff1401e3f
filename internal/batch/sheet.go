package batch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xuri/excelize/v2"
)

// Limits of a spreadsheet. The file itself is held in memory, because a ZIP
// archive is read from its end; its parts are unpacked to temporary files.
const (
	sheetFileBytesMax     = 64 << 20
	sheetUnpackedBytesMax = 200 << 20
	sheetPartBytesMax     = 16 << 20 // a greater one goes to a temporary file
	// numberDigitsMax is to how many significant digits a spreadsheet shows a
	// number. It keeps more, which are the rounding errors of binary fractions.
	numberDigitsMax = 15
)

// sheet reads the rows of the first visible sheet of a spreadsheet.
type sheet struct {
	*file
	book        *excelize.File
	rows        *excelize.Rows
	columnNames []string
	row         int
	isDate1904  bool
}

// openSheet reads the header of a spreadsheet. Faults of the file are
// *FileError; other errors are the source's own.
func openSheet(f *file) (s *sheet, err error) {
	defer f.recoverSheet(&err)
	content, err := io.ReadAll(io.LimitReader(f.raw, sheetFileBytesMax+1))
	if err != nil {
		return nil, f.broken(err, 0)
	}
	switch {
	case len(content) == 0:
		return nil, &FileError{File: f.name, Reason: "the file is empty"}
	case len(content) > sheetFileBytesMax:
		return nil, &FileError{File: f.name, Reason: fmt.Sprintf("a spreadsheet has at most %d bytes; a .csv may have more", sheetFileBytesMax)}
	case bytes.HasPrefix(content, []byte("\xD0\xCF\x11\xE0")): // a compound file, [MS-CFB]
		return nil, &FileError{File: f.name, Reason: "the spreadsheet is protected by a password, or is of the old format .xls"}
	}
	book, err := excelize.OpenReader(bytes.NewReader(content), excelize.Options{
		RawCellValue: true, UnzipSizeLimit: sheetUnpackedBytesMax, UnzipXMLSizeLimit: sheetPartBytesMax,
	})
	if err != nil {
		return nil, f.brokenSheet(err)
	}
	s = &sheet{file: f, book: book}
	if err := s.begin(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// begin finds the sheet and reads its header.
func (s *sheet) begin() error {
	if properties, err := s.book.GetWorkbookProps(); err == nil && properties.Date1904 != nil {
		s.isDate1904 = *properties.Date1904
	}
	names := s.book.GetSheetList()
	first := slices.IndexFunc(names, func(name string) bool {
		visible, err := s.book.GetSheetVisible(name)
		return err == nil && visible
	})
	if first < 0 {
		return &FileError{File: s.name, Reason: "the spreadsheet has no visible sheet"}
	}
	var err error
	if s.rows, err = s.book.Rows(names[first]); err != nil {
		return s.brokenSheet(err)
	}
	cells, err := s.next()
	if errors.Is(err, io.EOF) {
		return &FileError{File: s.name, Reason: "the first visible sheet is empty; its first row must name the columns"}
	}
	if err != nil {
		return err
	}
	s.columnNames, err = headerOf(s.file, s.row, cells)
	return err
}

// names implements rowReader.
func (s *sheet) names() []string { return s.columnNames }

// line implements rowReader.
func (s *sheet) line() int { return s.row }

// next implements rowReader.
func (s *sheet) next() (cells []string, err error) {
	defer s.recoverSheet(&err)
	for s.rows.Next() {
		s.row++
		if cells, err = s.rows.Columns(excelize.Options{RawCellValue: true}); err != nil {
			return nil, s.brokenSheet(err)
		}
		if !slices.ContainsFunc(cells, func(cell string) bool { return cell != "" }) {
			continue
		}
		for len(cells) < len(s.columnNames) { // empty cells at the end of a row are not stored
			cells = append(cells, "")
		}
		return cells, nil
	}
	if err := s.rows.Error(); err != nil {
		return nil, s.brokenSheet(err)
	}
	return nil, io.EOF
}

// Close removes the temporary files.
func (s *sheet) Close() error {
	if s.rows != nil {
		if err := s.rows.Close(); err != nil {
			return fmt.Errorf("close the sheet of %s: %w", s.name, err)
		}
	}
	if err := s.book.Close(); err != nil {
		return fmt.Errorf("close %s: %w", s.name, err)
	}
	return nil
}

// adjust writes a stored cell as the text it stands for: a time, which is stored
// as a number of days, where the property is a date; true and false, which are
// stored as 1 and 0; a number without the rounding errors of binary fractions.
func (s *sheet) adjust(cell string, c *column) string {
	switch {
	case c.types.has(typeBoolean) && cell == "1":
		return "true"
	case c.types.has(typeBoolean) && cell == "0":
		return "false"
	case c.types.has(typeNumber) && isNumber(cell):
		return shownNumber(cell)
	case c.format == "date" || c.format == "date-time":
		days, err := strconv.ParseFloat(cell, 64)
		if err != nil {
			return cell // it is a text
		}
		at, err := excelize.ExcelDateToTime(days, s.isDate1904)
		if err != nil {
			return cell
		}
		if c.format == "date" {
			return at.Format(time.DateOnly)
		}
		return at.Format(time.RFC3339)
	default:
		return cell
	}
}

// shownNumber rounds a number that has a binary fraction's digits to those that
// a spreadsheet shows: 0.28999999999999998 is 0.29. Longer ones are texts.
func shownNumber(cell string) string {
	mantissa, _, hasExponent := strings.Cut(strings.ToLower(cell), "e")
	digits := len(strings.TrimLeft(strings.NewReplacer("-", "", ".", "").Replace(mantissa), "0"))
	if digits <= numberDigitsMax || digits > numberDigitsMax+2 || !hasExponent && !strings.Contains(cell, ".") {
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
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// brokenSheet is broken for errors of the spreadsheet's reader.
func (f *file) brokenSheet(err error) error {
	failed := f.broken(err, 0)
	if broken, ok := errors.AsType[*FileError](failed); ok {
		if strings.Contains(err.Error(), "unzip size exceeds") {
			broken.Reason = fmt.Sprintf("the spreadsheet is larger than %d bytes when it is unpacked", sheetUnpackedBytesMax)
		} else {
			broken.Reason = "this is not a spreadsheet of the format .xlsx, or it is broken or cut off"
		}
	}
	return failed
}

// recoverSheet turns a panic of the spreadsheet's reader, which is fed with
// files of strangers, into a fault of the file.
func (f *file) recoverSheet(err *error) {
	if r := recover(); r != nil {
		*err = f.brokenSheet(fmt.Errorf("panic: %v", r))
	}
}
