package batch

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/itemfile"
	"tranche/queries"
)

// Names of the files of an output package (decisions 6.7).
const (
	resultsCSVName   = "results.csv"
	resultsJSONLName = "results.jsonl"
	failedCSVName    = "failed.csv"
	manifestName     = "manifest.json"
)

// itemResult is an ended item as the output package tells it.
type itemResult struct {
	itemIndex   int32
	rowNumber   *int32
	fileName    *string // of the source
	executionID string
	status      string
	statusCode  *int32
	// input and result are objects of JSON as they are stored; output and
	// errorMessage are of the result.
	input, result, output string
	errorMessage          string
}

// newItemResult reads what the database tells of an item.
func newItemResult(row *queries.BatchItemsListResultsRow) (*itemResult, error) {
	r := &itemResult{
		itemIndex: row.ItemIndex, rowNumber: row.RowNumber, fileName: row.SourceFileName, executionID: row.ID.String(),
		status: row.Status, statusCode: row.StatusCode, input: string(row.Input), result: string(row.Result),
	}
	return r, r.readResult()
}

// readResult finds the output and the message in the result.
func (r *itemResult) readResult() error {
	r.output = "{}"
	walk, members := jsonWalk{text: r.result}, 0
	err := walk.members(func(name string) (err error) {
		members++
		value := walk.value()
		switch {
		case name == "output" && strings.HasPrefix(value, "{"):
			r.output = value
		case name == "errorMessage" && strings.HasPrefix(value, `"`):
			r.errorMessage, err = unquote(value)
		}
		return err
	})
	if err == nil && members == 0 {
		err = errNotJSON
	}
	if err != nil {
		return fmt.Errorf("result of execution %s: %w", r.executionID, err)
	}
	return nil
}

// resultsTable writes results.csv: every item, its input and output flattened.
type resultsTable struct {
	w               *csv.Writer
	inputs, outputs *columnSet
	cells           []string
}

// Columns of results.csv before the input's and after the output's.
var (
	resultsHead = []string{"itemIndex", "rowNumber", "sourceFileName", "executionId", "status", "statusCode"} //nolint:gochecknoglobals // constant
	resultsTail = []string{"errorMessage"}                                                                    //nolint:gochecknoglobals // constant
)

func newResultsTable(w io.Writer, inputs, outputs []string) *resultsTable {
	return &resultsTable{
		w: csv.NewWriter(w), inputs: newColumnSet(inputs...), outputs: newColumnSet(outputs...),
		cells: make([]string, len(resultsHead)+len(inputs)+len(outputs)+len(resultsTail)),
	}
}

func (t *resultsTable) writeHeader() error {
	header := slices.Clone(resultsHead)
	for _, name := range t.inputs.names {
		header = append(header, "input."+name)
	}
	for _, name := range t.outputs.names {
		header = append(header, "output."+name)
	}
	return t.w.Write(append(header, resultsTail...))
}

func (t *resultsTable) write(r *itemResult) error {
	cells := t.cells
	cells[0] = strconv.Itoa(int(r.itemIndex))
	cells[1], cells[2] = optionalInt(r.rowNumber), itemfile.Escape(optionalText(r.fileName))
	cells[3], cells[4], cells[5] = r.executionID, r.status, optionalInt(r.statusCode)
	cells = cells[len(resultsHead):]
	if err := t.inputs.fill(cells, r.input); err != nil {
		return err
	}
	cells = cells[len(t.inputs.names):]
	if err := t.outputs.fill(cells, r.output); err != nil {
		return err
	}
	cells[len(t.outputs.names)] = itemfile.Escape(r.errorMessage)
	return t.w.Write(t.cells)
}

func (t *resultsTable) flush() error {
	t.w.Flush()
	return t.w.Error()
}

// failedTable writes failed.csv: the inputs of the items that failed, ready to
// be corrected and uploaded again. Reading ignores the columns that begin with _.
type failedTable struct {
	w      *csv.Writer
	inputs *columnSet
	cells  []string
}

// Columns of failed.csv after the input's.
var failedTail = []string{"_row", "_sourceFile", "_error"} //nolint:gochecknoglobals // constant

func newFailedTable(w io.Writer, inputs []string) *failedTable {
	return &failedTable{w: csv.NewWriter(w), inputs: newColumnSet(inputs...), cells: make([]string, len(inputs)+len(failedTail))}
}

func (t *failedTable) writeHeader() error {
	var header []string
	for _, name := range t.inputs.names {
		header = append(header, itemfile.Escape(name))
	}
	return t.w.Write(append(header, failedTail...))
}

func (t *failedTable) write(r *itemResult) error {
	if err := t.inputs.fill(t.cells, r.input); err != nil {
		return err
	}
	tail := t.cells[len(t.inputs.names):]
	tail[0], tail[1] = optionalInt(r.rowNumber), itemfile.Escape(optionalText(r.fileName))
	tail[2] = itemfile.Escape(r.errorMessage)
	return t.w.Write(t.cells)
}

func (t *failedTable) flush() error {
	t.w.Flush()
	return t.w.Error()
}

// resultsLines writes results.jsonl: every item as one line of JSON, its input
// and result as they are stored.
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
	line = append(line, r.result[strings.IndexByte(r.result, '{')+1:]...)
	l.line = append(line, '\n')
	_, err = l.w.Write(l.line)
	return err
}

// reportPage is the texts of some items for the files of a report.
type reportPage struct {
	texts   [manifestFile]bytes.Buffer // of each file but the manifest
	rows    [manifestFile]int32
	results *resultsTable
	lines   *resultsLines
	failed  *failedTable
}

func newReportPage(inputs, outputs []string) *reportPage {
	p := &reportPage{}
	p.results = newResultsTable(&p.texts[resultsCSVFile], inputs, outputs)
	p.lines = &resultsLines{w: &p.texts[resultsJSONLFile]}
	p.failed = newFailedTable(&p.texts[failedCSVFile], inputs)
	return p
}

func (p *reportPage) writeHeaders() error {
	return errors.Join(p.results.writeHeader(), p.failed.writeHeader(), p.flush())
}

func (p *reportPage) write(r *itemResult) error {
	if err := p.results.write(r); err != nil {
		return err
	}
	p.rows[resultsCSVFile]++
	if err := p.lines.write(r); err != nil {
		return err
	}
	p.rows[resultsJSONLFile]++
	if r.status == string(engine.StatusCompleted) {
		return nil
	}
	p.rows[failedCSVFile]++
	return p.failed.write(r)
}

func (p *reportPage) flush() error { return errors.Join(p.results.flush(), p.failed.flush()) }

// reset empties the page for other items.
func (p *reportPage) reset() {
	for i := range p.texts {
		p.texts[i].Reset()
	}
	clear(p.rows[:])
}

func optionalInt(n *int32) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(int(*n))
}

func optionalText(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
