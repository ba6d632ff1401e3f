package itemfile

import (
	"encoding/csv"
	"io"
	"strings"
	"unicode/utf8"
)

// delimiterRowsMax is the most rows of the sample that are compared.
const delimiterRowsMax = 50

// detectDelimiter chooses comma, semicolon, tab or pipe (contract 6.2). It takes the
// delimiter for which most rows of the sample have as many cells as the header. If
// several are equal, it takes the one with most columns. The default is comma.
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

// divide returns the number of columns of the header and the share of rows with as many
// cells.
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
			break // the sample can end within this row
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

// declaredDelimiter returns the delimiter in a first line such as "sep=;", and the length
// of that line. Excel writes such a line and does not show it. Without such a line the
// results are 0.
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

// endsLinesWithCR reports whether the first line ends with CR without LF, as Excel for
// the Macintosh writes.
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

// carriageReturns replaces each CR by LF.
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
