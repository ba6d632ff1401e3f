package batch

import (
	"encoding/csv"
	"errors"
	"io"
	"strings"
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
		if errors.Is(err, io.EOF) || err != nil {
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
