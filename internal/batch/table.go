package batch

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// table reads the rows of a delimited file, one at a time.
type table struct {
	*file
	text *boundedReader
	csv  *csv.Reader
	// row is the number of the last row that was read, and lastLine the line of
	// the text it ended on: blank lines between rows count as rows, as they do in
	// the spreadsheet the user sees.
	row, lastLine int
	header        []string
}

// openTable reads the header of a delimited file. Faults of the file are
// *FileError; other errors are the source's own.
func openTable(f *file) (*table, error) {
	t := &table{file: f, text: f.bounded()}
	text := bufio.NewReaderSize(t.text, sampleBytes)
	sample, err := text.Peek(sampleBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, t.broken(err, 0)
	}
	t.csv = csv.NewReader(text)
	t.csv.FieldsPerRecord, t.csv.ReuseRecord = -1, true
	if t.csv.Comma = f.format.delimiter; f.format.delimiter == 0 {
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
	t.header, err = headerOf(t.file, 1, cells)
	return err
}

// headerOf reads the names of the columns.
func headerOf(f *file, row int, cells []string) ([]string, error) {
	if len(cells) > columnsMax {
		return nil, &FileError{File: f.name, Row: row, Reason: fmt.Sprintf("there are more than %d columns", columnsMax)}
	}
	header := make([]string, len(cells))
	for i, cell := range cells {
		if strings.ContainsFunc(cell, func(r rune) bool { return r == unicode.ReplacementChar || unicode.IsControl(r) && !unicode.IsSpace(r) }) {
			return nil, &FileError{File: f.name, Row: row, Reason: "this is not a table of text"}
		}
		header[i] = strings.TrimSpace(unescape(cell))
	}
	return header, nil
}

// names implements rowReader.
func (t *table) names() []string { return t.header }

// line implements rowReader.
func (t *table) line() int { return t.row }

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
	if parse, ok := errors.AsType[*csv.ParseError](err); ok && t.source.err == nil {
		return &FileError{File: t.name, Row: row + parse.StartLine - t.lastLine - 1, Reason: "a quote is out of place or not closed"}
	}
	return t.broken(err, row)
}
