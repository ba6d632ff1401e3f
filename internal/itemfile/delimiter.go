package itemfile

import (
	"encoding/csv"
	"io"
	"strings"
	"unicode/utf8"
)

// delimiterRowsMax is how many rows of the sample are compared.
const delimiterRowsMax = 50

// detectDelimiter chooses among comma, semicolon, tab and pipe (decisions 6.2)
// the one at which the rows of the sample divide like the header; of several,
// the one with most columns. A table of one column counts as comma separated.
func detectDelimiter(sample string, isWhole bool) rune {
	best, bestAgree, bestColumns := ',', 0.0, 1
	for _, candidate := range []rune{',', ';', '\t', '|'} {
		columns, agree := divide(sample, candidate, isWhole)
		if columns < 2 {
			continue
		}
		if agree > bestAgree || agree == bestAgree && columns > bestColumns {
			best, bestAgree, bestColumns = candidate, agree, columns
		}
	}
	return best
}

// divide returns the number of columns of the header and which part of the
// rows has as many.
func divide(sample string, delimiter rune, isWhole bool) (columns int, agree float64) {
	r := csv.NewReader(strings.NewReader(sample))
	r.Comma, r.FieldsPerRecord, r.LazyQuotes, r.ReuseRecord = delimiter, -1, true, true
	rows, same := 0, 0
	for rows < delimiterRowsMax {
		cells, err := r.Read()
		if err != nil {
			break
		}
		if !isWhole && r.InputOffset() == int64(len(sample)) {
			break // the sample may end within this row
		}
		if rows == 0 {
			columns = len(cells)
		}
		if len(cells) == columns {
			same++
		}
		rows++
	}
	if rows == 0 {
		return 0, 0
	}
	return columns, float64(same) / float64(rows)
}

// declaredDelimiter returns the delimiter that a first line such as sep=; names,
// which Excel writes and hides, and the length of that line; zeros for none.
func declaredDelimiter(sample string) (delimiter rune, length int) {
	line, _, isLine := strings.Cut(sample, "\n")
	if !isLine {
		return 0, 0
	}
	text := strings.TrimSuffix(line, "\r")
	if unquoted, ok := strings.CutPrefix(text, `"`); ok {
		text = strings.TrimSuffix(unquoted, `"`)
	}
	const mark = "sep="
	if len(text) <= len(mark) || !strings.EqualFold(text[:len(mark)], mark) {
		return 0, 0
	}
	delimiter, size := utf8.DecodeRuneInString(text[len(mark):])
	if size != len(text)-len(mark) || delimiter == utf8.RuneError || strings.ContainsRune("\"\r", delimiter) {
		return 0, 0
	}
	return delimiter, len(line) + 1
}

// endsLinesWithCR reports whether the first line ends with a carriage return
// alone, as Excel for the Macintosh writes.
func endsLinesWithCR(sample []byte) bool {
	isQuoted := false
	for i, c := range sample {
		switch {
		case c == '"':
			isQuoted = !isQuoted
		case isQuoted:
		case c == '\n':
			return false
		case c == '\r':
			return i+1 == len(sample) || sample[i+1] != '\n'
		}
	}
	return false
}

// carriageReturns makes lines that end with a carriage return alone end with a
// newline.
type carriageReturns struct{ source io.Reader }

// Read implements io.Reader.
func (c *carriageReturns) Read(p []byte) (int, error) {
	n, err := c.source.Read(p)
	for i, b := range p[:n] {
		if b == '\r' {
			p[i] = '\n'
		}
	}
	return n, err
}
