package itemfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// table reads the rows of a delimited file (RFC 4180), one at a time. It does not use
// encoding/csv, which replaces CR LF in a quoted cell by LF.
type table struct {
	*file
	text      *boundedReader
	lines     *bufio.Reader // reads from text
	delimiter []byte
	header    []string
	row       int // number of the last row; blank lines count, as in a spreadsheet program

	rest      []byte // the part of the current line that is not yet read
	long      []byte // memory for a line that is longer than the buffer of lines
	lineCount int    // lines of the current row
	values    []byte // the cells of the current row, one after the other
	ends      []int  // where each cell ends in values
	cells     []string
}

// openTable reads the header of a delimited file. Faults of the file are *Error;
// other errors come from the source.
func openTable(f *file) (*table, error) {
	t := &table{file: f, text: f.bounded()}
	t.lines = bufio.NewReaderSize(t.text, sampleBytes)
	head, err := t.lines.Peek(sampleBytes) // reading the rows returns an error again
	if endsLinesWithCR(head) {
		t.lines = bufio.NewReaderSize(&carriageReturns{source: t.lines}, sampleBytes)
		head, err = t.lines.Peek(sampleBytes)
	}
	sample := string(head)
	delimiter, declaration := declaredDelimiter(sample)
	if delimiter == 0 {
		delimiter = f.format.delimiter
	}
	if delimiter == 0 {
		delimiter = detectDelimiter(sample, errors.Is(err, io.EOF))
	}
	_, _ = t.lines.Discard(declaration) // it was peeked
	t.delimiter = utf8.AppendRune(nil, delimiter)
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
	t.row = 1 // blank lines before the header do not count
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
		return nil, &Error{File: f.name, Row: row, Reason: fmt.Sprintf("the table must have at most %d columns", ColumnsMax)}
	}
	header := make([]string, len(cells))
	for i, cell := range cells {
		if strings.ContainsFunc(cell, func(r rune) bool { return r == unicode.ReplacementChar || unicode.IsControl(r) && !unicode.IsSpace(r) }) {
			return nil, &Error{File: f.name, Row: row, Reason: "the file must be a table of text"}
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

// read returns the cells of the next row that is no blank line. The cells are valid
// until the next call. A quote that is out of place fails the row alone: *rowError
// comes with the cells before it.
func (t *table) read() ([]string, error) {
	for isBlank := true; isBlank; isBlank = len(trimEnd(t.rest)) == 0 {
		t.text.rowLeft = rowBytesMax
		if err := t.readLine(); errors.Is(err, io.EOF) {
			return nil, io.EOF
		} else if err != nil {
			return nil, t.fail(err, t.row+1)
		}
		t.row++
	}
	t.values, t.ends, t.lineCount = t.values[:0], t.ends[:0], 1
	err := t.split()
	values, start := string(t.values), 0
	t.cells = t.cells[:0]
	for _, end := range t.ends {
		t.cells, start = append(t.cells, values[start:end]), end
	}
	return t.cells, err
}

// split divides a row into its cells.
func (t *table) split() error {
	for hasNext := true; hasNext; t.rest, hasNext = bytes.CutPrefix(t.rest, t.delimiter) {
		if len(t.rest) > 0 && t.rest[0] == '"' {
			if err := t.quotedCell(); err != nil {
				return err
			}
		} else {
			cell := trimEnd(t.rest)
			if i := bytes.Index(cell, t.delimiter); i >= 0 {
				cell = cell[:i]
			}
			if bytes.IndexByte(cell, '"') >= 0 {
				return t.misplacedQuote()
			}
			t.values, t.rest = append(t.values, cell...), t.rest[len(cell):]
		}
		t.ends = append(t.ends, len(t.values))
	}
	return nil
}

// quotedCell reads a cell that begins with a quote. Its text can contain delimiters,
// line ends and, doubled, quotes.
func (t *table) quotedCell() error {
	t.rest = t.rest[1:]
	for {
		i := bytes.IndexByte(t.rest, '"')
		if i < 0 {
			t.values = append(t.values, t.rest...)
			if err := t.readLine(); errors.Is(err, io.EOF) {
				return t.misplacedQuote()
			} else if err != nil {
				return t.fail(err, t.row)
			}
			t.lineCount++
			continue
		}
		t.values, t.rest = append(t.values, t.rest[:i]...), t.rest[i+1:]
		switch {
		case len(t.rest) > 0 && t.rest[0] == '"':
			t.values, t.rest = append(t.values, '"'), t.rest[1:]
		case len(trimEnd(t.rest)) == 0, bytes.HasPrefix(t.rest, t.delimiter):
			return nil
		default:
			return t.misplacedQuote()
		}
	}
}

// misplacedQuote returns a *rowError for a row of one line. A longer row may contain
// the rows after it because its quote is not closed; then the whole file is refused.
func (t *table) misplacedQuote() error {
	const reason = "a quote is out of place or not closed"
	if t.lineCount > 1 {
		return &Error{File: t.name, Row: t.row, Reason: reason}
	}
	broken := &rowError{reason: reason}
	if len(t.ends) < len(t.header) {
		broken.column = t.header[len(t.ends)]
	}
	return broken
}

// readLine reads a line with its end into rest, or returns io.EOF.
func (t *table) readLine() error {
	line, err := t.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		t.long = t.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			t.long = append(t.long, line...)
			line, err = t.lines.ReadSlice('\n')
		}
		t.long = append(t.long, line...)
		line = t.long
	}
	if errors.Is(err, io.EOF) {
		if t.source.err != nil {
			return t.source.err
		}
		if line = bytes.TrimSuffix(line, []byte("\r")); len(line) > 0 {
			err = nil // the last line has no end
		}
	}
	t.rest = line
	return err
}

// trimEnd removes the end of a line, which is LF or CR LF.
func trimEnd(line []byte) []byte {
	line, hasEnd := bytes.CutSuffix(line, []byte("\n"))
	if hasEnd {
		line = bytes.TrimSuffix(line, []byte("\r"))
	}
	return line
}

// fail turns an error of the decoders into one that names the file and the row.
func (t *table) fail(err error, row int) error {
	failed := t.broken(err, row)
	if broken, isFile := errors.AsType[*Error](failed); isFile && errors.Is(err, errRowTooLong) {
		broken.Reason += "; is a quote not closed?"
	}
	return failed
}
