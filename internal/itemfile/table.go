package itemfile

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// table reads the rows of a delimited file, one at a time.
type table struct {
	*file
	text  *boundedReader
	lines *bufio.Reader // what csv reads from
	csv   *csv.Reader
	// row is the number of the last row that was read, and lastLine the line of
	// the text it ended on: blank lines between rows count as rows, as they do in
	// the spreadsheet the user sees.
	row, lastLine int
	header        []string
}

// openTable reads the header of a delimited file. Faults of the file are
// *Error; other errors are the source's own.
func openTable(f *file) (*table, error) {
	t := &table{file: f, text: f.bounded()}
	text := bufio.NewReaderSize(t.text, sampleBytes)
	head, err := text.Peek(sampleBytes) // an error shows again when the rows are read
	if endsLinesWithCR(head) {
		text = bufio.NewReaderSize(&carriageReturns{source: text}, sampleBytes)
		head, err = text.Peek(sampleBytes)
	}
	sample := string(head)
	delimiter, declaration := declaredDelimiter(sample)
	if delimiter == 0 {
		delimiter = f.format.delimiter
	}
	if delimiter == 0 {
		delimiter = detectDelimiter(sample, errors.Is(err, io.EOF))
	}
	_, _ = text.Discard(declaration) // it was peeked
	t.lines, t.csv = text, csv.NewReader(text)
	t.csv.Comma, t.csv.FieldsPerRecord, t.csv.ReuseRecord = delimiter, -1, true
	return t, t.readHeader()
}

func (t *table) readHeader() error {
	cells, err := t.read()
	if errors.Is(err, io.EOF) {
		return &Error{File: t.name, Reason: "the file is empty; the first row must name the columns"}
	}
	if broken, ok := errors.AsType[*rowError](err); ok {
		return &Error{File: t.name, Row: 1, Reason: broken.reason}
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
	ignored := 0
	for _, cell := range cells {
		if strings.HasPrefix(cell, ignoredPrefix) {
			ignored++
		}
	}
	if len(cells)-ignored > ColumnsMax || ignored > ColumnsMax {
		return nil, &Error{File: f.name, Row: row, Reason: fmt.Sprintf("there are more than %d columns", ColumnsMax)}
	}
	header := make([]string, len(cells))
	for i, cell := range cells {
		if strings.ContainsFunc(cell, func(r rune) bool { return r == unicode.ReplacementChar || unicode.IsControl(r) && !unicode.IsSpace(r) }) {
			return nil, &Error{File: f.name, Row: row, Reason: "this is not a table of text"}
		}
		header[i] = strings.TrimSpace(unescape(cell))
	}
	return header, nil
}

// names implements rowReader.
func (t *table) names() []string { return t.header }

// line implements rowReader.
func (t *table) line() int { return t.row }

// next implements rowReader.
func (t *table) next() ([]string, error) {
	for {
		cells, err := t.read()
		if err != nil {
			return cells, err
		}
		if slices.ContainsFunc(cells, func(cell string) bool { return cell != "" }) {
			return cells, nil
		}
	}
}

// passOverBlankLines reads the lines without text that come before a row. A sheet of
// one column can have as many of them as it has rows, and csv.Reader, which reads
// from the same buffer, would pass over them within one call: the bound of a row
// would count them.
func (t *table) passOverBlankLines() {
	for {
		t.text.rowLeft = rowBytesMax
		head, _ := t.lines.Peek(2) // an error shows again when the row is read
		switch {
		case bytes.HasPrefix(head, []byte("\n")):
			_, _ = t.lines.Discard(1) // it was peeked
		case string(head) == "\r\n":
			_, _ = t.lines.Discard(2)
		default:
			return
		}
		t.row++
	}
}

func (t *table) read() ([]string, error) {
	t.passOverBlankLines()
	cells, err := t.csv.Read()
	if errors.Is(err, io.EOF) && t.source.err == nil {
		return nil, io.EOF
	}
	if err != nil {
		return cells, t.fail(err, cells)
	}
	line, _ := t.csv.FieldPos(0)
	t.row += line - t.lastLine
	lastCell := len(cells) - 1
	line, _ = t.csv.FieldPos(lastCell)
	t.lastLine = line + strings.Count(cells[lastCell], "\n")
	return cells, nil
}

// fail turns an error of the decoders into one that names the file, or only the
// row where a quote is out of place within one line. A quote that is not closed
// may have swallowed the rows after it: then nothing of the file can be trusted.
func (t *table) fail(err error, before []string) error {
	parse, ok := errors.AsType[*csv.ParseError](err)
	if !ok || t.source.err != nil {
		failed := t.broken(err, t.row+1)
		if broken, isFile := errors.AsType[*Error](failed); isFile && errors.Is(err, errRowTooLong) {
			broken.Reason += "; is a quote not closed?"
		}
		return failed
	}
	const reason = "a quote is out of place or not closed"
	t.row += parse.StartLine - t.lastLine
	if parse.Line > parse.StartLine {
		return &Error{File: t.name, Row: t.row, Reason: reason}
	}
	t.lastLine = parse.Line
	broken := &rowError{reason: reason}
	if len(before) < len(t.header) {
		broken.column = t.header[len(before)]
	}
	return broken
}
