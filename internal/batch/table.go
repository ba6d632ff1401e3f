package batch

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Limits of a table.
const (
	columnsMax    = 1000
	rowBytesMax   = 1 << 20 // of one row
	tableBytesMax = 4 << 30 // unpacked
)

// FileError says why a file can not be read, in words that are safe to show:
// loans.csv, row 17: a quote is not closed.
type FileError struct {
	File   string
	Row    int // of the table, header = 1; 0 where it concerns the whole file
	Column string
	Reason string
}

func (e *FileError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Row > 0 {
		fmt.Fprintf(&b, ", row %d", e.Row)
	}
	if e.Column != "" {
		fmt.Fprintf(&b, ", column %s", e.Column)
	}
	b.WriteString(": " + e.Reason)
	return b.String()
}

var (
	errRowTooLong    = fmt.Errorf("the row is longer than %d bytes; is a quote not closed?", rowBytesMax)
	errTableTooLarge = fmt.Errorf("the table is larger than %d bytes", int64(tableBytesMax))
)

// table reads the rows of a delimited file, one at a time.
type table struct {
	name   string
	source *sourceReader
	text   *boundedReader
	csv    *csv.Reader
	// row is the number of the last row that was read, and lastLine the line of
	// the text it ended on: blank lines between rows count as rows, as they do in
	// the spreadsheet the user sees.
	row, lastLine int
	header        []string
}

// sourceReader keeps an error of the storage apart from one of the file.
type sourceReader struct {
	source io.Reader
	err    error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.source.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// boundedReader bounds the bytes of a row and of the table.
type boundedReader struct {
	source             io.Reader
	rowLeft, tableLeft int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.rowLeft <= 0 {
		return 0, errRowTooLong
	}
	if b.tableLeft <= 0 {
		return 0, errTableTooLarge
	}
	n, err := b.source.Read(p[:min(int64(len(p)), b.rowLeft)])
	b.rowLeft -= int64(n)
	b.tableLeft -= int64(n)
	return n, err
}

// openTable reads the header of a file. Faults of the file are *FileError;
// other errors are the source's own.
func openTable(fileName string, source io.Reader) (*table, error) {
	f, isGzip, ok := formatOf(fileName)
	if !ok {
		return nil, &FileError{File: fileName, Reason: "files of this type are not read; the name must end in " + extensions()}
	}
	t := &table{name: fileName, source: &sourceReader{source: source}}
	var raw io.Reader = t.source
	if isGzip {
		unpacked, err := gzip.NewReader(raw)
		if err != nil {
			return nil, t.fail(err, 0)
		}
		raw = unpacked
	}
	t.text = &boundedReader{source: decodeText(raw), rowLeft: rowBytesMax, tableLeft: tableBytesMax}
	text := bufio.NewReaderSize(t.text, sampleBytes)
	sample, err := text.Peek(sampleBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, t.fail(err, 0)
	}
	t.csv = csv.NewReader(text)
	t.csv.FieldsPerRecord, t.csv.ReuseRecord = -1, true
	if t.csv.Comma = f.delimiter; f.delimiter == 0 {
		t.csv.Comma = detectDelimiter(string(sample), err != nil)
	}
	return t, t.readHeader()
}

func (t *table) readHeader() error {
	cells, err := t.read()
	if errors.Is(err, io.EOF) {
		return &FileError{File: t.name, Reason: "the file is empty; the first row must name the columns"}
	}
	if err != nil {
		return err
	}
	t.row = 1
	if len(cells) > columnsMax {
		return &FileError{File: t.name, Row: 1, Reason: fmt.Sprintf("there are more than %d columns", columnsMax)}
	}
	t.header = make([]string, len(cells))
	for i, cell := range cells {
		if strings.ContainsFunc(cell, func(r rune) bool { return r == unicode.ReplacementChar || unicode.IsControl(r) && !unicode.IsSpace(r) }) {
			return &FileError{File: t.name, Row: 1, Reason: "this is not a table of text"}
		}
		t.header[i] = strings.TrimSpace(unescape(cell))
	}
	return nil
}

// next returns the cells of the next row that is not empty, valid until the
// next call, or io.EOF.
func (t *table) next() ([]string, error) {
	for {
		cells, err := t.read()
		if err != nil {
			return nil, err
		}
		for _, cell := range cells {
			if cell != "" {
				return cells, nil
			}
		}
	}
}

func (t *table) read() ([]string, error) {
	t.text.rowLeft = rowBytesMax
	cells, err := t.csv.Read()
	if errors.Is(err, io.EOF) && t.source.err == nil {
		return nil, io.EOF
	}
	if err != nil {
		return nil, t.fail(err, t.row+1)
	}
	line, _ := t.csv.FieldPos(0)
	t.row += line - t.lastLine
	lastCell := len(cells) - 1
	line, _ = t.csv.FieldPos(lastCell)
	t.lastLine = line + strings.Count(cells[lastCell], "\n")
	return cells, nil
}

// fail turns an error of the decoders into one that names the file.
func (t *table) fail(err error, row int) error {
	if t.source.err != nil {
		return fmt.Errorf("read %s: %w", t.name, t.source.err)
	}
	e := &FileError{File: t.name, Row: row, Reason: "the file is broken or cut off"}
	var parse *csv.ParseError
	switch {
	case errors.As(err, &parse):
		e.Row += parse.StartLine - t.lastLine - 1
		e.Reason = "a quote is out of place or not closed"
	case errors.Is(err, errRowTooLong), errors.Is(err, errTableTooLarge):
		e.Reason = err.Error()
	case errors.Is(err, gzip.ErrHeader):
		e.Reason = "this is not a gzip file"
	}
	return e
}
