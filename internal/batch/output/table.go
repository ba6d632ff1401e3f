package output

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"

	"tranche/internal/exactjson"
	"tranche/internal/itemfile"
	"tranche/queries"
)

// itemResult is an ended item as the output package shows it.
type itemResult struct {
	itemIndex   int32
	rowNumber   *int32
	fileName    *string // of the source
	executionID string
	status      string
	statusCode  *int32
	// input and result are the stored JSON objects. output and errorMessage are members of
	// the result.
	input, result, output []byte
	errorMessage          string
}

// newItemResult makes the result of an item from its row.
func newItemResult(row *queries.BatchItemsListResultsRow) (*itemResult, error) {
	r := &itemResult{
		itemIndex: row.ItemIndex, rowNumber: row.RowNumber, fileName: row.SourceFileName, executionID: row.ID.String(),
		status: row.Status, statusCode: row.StatusCode, input: row.Input, result: row.Result, output: []byte("{}"),
	}
	err := exactjson.Members(row.Result, func(name string, value []byte) error {
		switch {
		case name == "output" && value[0] == '{':
			r.output = value
		case name == "errorMessage" && value[0] == '"':
			message, err := exactjson.Decode(value)
			r.errorMessage, _ = message.(string)
			return err
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the result of execution %s: %w", r.executionID, err)
	}
	return r, nil
}

// resultsTable writes results.csv: a row for every item, with a column for every leaf of its
// input and output.
type resultsTable struct {
	w               *csv.Writer
	inputs, outputs *itemfile.Columns
	cells           []string
}

// Columns of results.csv before the input's and after the output's.
var (
	resultsHead = []string{"itemIndex", "rowNumber", "sourceFileName", "executionId", "status", "statusCode"} //nolint:gochecknoglobals // constant
	resultsTail = []string{"errorMessage"}                                                                    //nolint:gochecknoglobals // constant
)

func newResultsTable(w io.Writer, inputs, outputs []string) *resultsTable {
	return &resultsTable{
		w: csv.NewWriter(w), inputs: itemfile.NewColumns(inputs...), outputs: itemfile.NewColumns(outputs...),
		cells: make([]string, len(resultsHead)+len(inputs)+len(outputs)+len(resultsTail)),
	}
}

func (t *resultsTable) writeHeader() error {
	header := slices.Clone(resultsHead)
	for _, name := range t.inputs.Names() {
		header = append(header, "input."+name)
	}
	for _, name := range t.outputs.Names() {
		header = append(header, "output."+name)
	}
	return t.w.Write(append(header, resultsTail...))
}

func (t *resultsTable) write(r *itemResult) error {
	cells := t.cells
	cells[0] = strconv.Itoa(int(r.itemIndex))
	cells[1], cells[2] = optionalInt(r.rowNumber), itemfile.Escape(queries.Value(r.fileName))
	cells[3], cells[4], cells[5] = r.executionID, r.status, optionalInt(r.statusCode)
	cells = cells[len(resultsHead):]
	if err := fillCells(t.inputs, cells, r.input); err != nil {
		return err
	}
	cells = cells[len(t.inputs.Names()):]
	if err := fillCells(t.outputs, cells, r.output); err != nil {
		return err
	}
	cells[len(t.outputs.Names())] = itemfile.Escape(r.errorMessage)
	return t.w.Write(t.cells)
}

func (t *resultsTable) flush() error {
	t.w.Flush()
	return t.w.Error()
}

// failedTable writes failed.csv: the inputs of the failed items, which can be corrected and
// uploaded again. Reading ignores columns that begin with _.
type failedTable struct {
	w      *csv.Writer
	inputs *itemfile.Columns
	cells  []string
}

// Columns of failed.csv after the input's.
var failedTail = []string{"_row", "_sourceFile", "_error"} //nolint:gochecknoglobals // constant

func newFailedTable(w io.Writer, inputs []string) *failedTable {
	if len(inputs) == 0 {
		inputs = []string{""} // a table needs a column that is read
	}
	return &failedTable{w: csv.NewWriter(w), inputs: itemfile.NewColumns(inputs...), cells: make([]string, len(inputs)+len(failedTail))}
}

func (t *failedTable) writeHeader() error {
	var header []string
	for _, name := range t.inputs.Names() {
		header = append(header, itemfile.Header(name))
	}
	return t.w.Write(append(header, failedTail...))
}

func (t *failedTable) write(r *itemResult) error {
	if err := fillCells(t.inputs, t.cells, r.input); err != nil {
		return err
	}
	tail := t.cells[len(t.inputs.Names()):]
	tail[0], tail[1] = optionalInt(r.rowNumber), itemfile.Escape(queries.Value(r.fileName))
	tail[2] = itemfile.Escape(r.errorMessage)
	return t.w.Write(t.cells)
}

func (t *failedTable) flush() error {
	t.w.Flush()
	return t.w.Error()
}

// resultsLines writes results.jsonl: a line of JSON for every item, with the stored input and
// result.
type resultsLines struct {
	w    io.Writer
	line []byte // reused
}

func (l *resultsLines) write(r *itemResult) error {
	line := append(l.line[:0], `{"executionId":"`...)
	line = append(line, r.executionID...)
	line = append(line, `","itemIndex":`...)
	line = strconv.AppendInt(line, int64(r.itemIndex), 10)
	line = append(line, `,"rowNumber":`...)
	line = append(line, cmp.Or(optionalInt(r.rowNumber), "null")...)
	line = append(line, `,"sourceFileName":`...)
	var err error
	if r.fileName == nil {
		line = append(line, "null"...)
	} else if line, err = exactjson.Append(line, *r.fileName); err != nil {
		return err
	}
	line = append(line, `,"status":"`...)
	line = append(line, r.status...)
	line = append(line, `","input":`...)
	line = append(line, r.input...)
	line = append(line, ',')
	line = append(line, r.result[bytes.IndexByte(r.result, '{')+1:]...)
	l.line = append(line, '\n')
	_, err = l.w.Write(l.line)
	return err
}

func optionalInt(n *int32) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(int(*n))
}
