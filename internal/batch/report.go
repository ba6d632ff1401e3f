package batch

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/google/uuid"

	"tranche/internal/exactjson"
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
	executionID uuid.UUID
	status      string
	statusCode  *int32
	// inputJSON and resultJSON are objects as they are stored; input, output
	// and errorMessage are read from them.
	inputJSON, resultJSON []byte
	input, output         map[string]any
	errorMessage          string
}

// decode reads the JSON of an item.
func (r *itemResult) decode() error {
	input, err := exactjson.Decode(r.inputJSON)
	if err != nil {
		return fmt.Errorf("input of execution %s: %w", r.executionID, err)
	}
	result, err := exactjson.Decode(r.resultJSON)
	if err != nil {
		return fmt.Errorf("result of execution %s: %w", r.executionID, err)
	}
	members, isObject := result.(map[string]any)
	if !isObject || len(members) == 0 {
		return fmt.Errorf("the result of execution %s is not an object", r.executionID)
	}
	r.input, _ = input.(map[string]any)
	r.output, _ = members["output"].(map[string]any)
	r.errorMessage, _ = members["errorMessage"].(string)
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

// newResultsTable writes the header.
func newResultsTable(w io.Writer, inputs, outputs []string) (*resultsTable, error) {
	t := &resultsTable{w: csv.NewWriter(w), inputs: newColumnSet(inputs...), outputs: newColumnSet(outputs...)}
	t.cells = append(t.cells, resultsHead...)
	for _, name := range t.inputs.names {
		t.cells = append(t.cells, "input."+name)
	}
	for _, name := range t.outputs.names {
		t.cells = append(t.cells, "output."+name)
	}
	t.cells = append(t.cells, resultsTail...)
	return t, t.w.Write(t.cells)
}

func (t *resultsTable) write(r *itemResult) error {
	cells := t.cells
	cells[0] = strconv.Itoa(int(r.itemIndex))
	cells[1], cells[2] = optionalInt(r.rowNumber), escape(optionalText(r.fileName))
	cells[3], cells[4], cells[5] = r.executionID.String(), r.status, optionalInt(r.statusCode)
	cells = cells[len(resultsHead):]
	if err := t.inputs.fill(cells, r.input); err != nil {
		return err
	}
	cells = cells[len(t.inputs.names):]
	if err := t.outputs.fill(cells, r.output); err != nil {
		return err
	}
	cells[len(t.outputs.names)] = escape(r.errorMessage)
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

// newFailedTable writes the header.
func newFailedTable(w io.Writer, inputs []string) (*failedTable, error) {
	t := &failedTable{w: csv.NewWriter(w), inputs: newColumnSet(inputs...)}
	for _, name := range t.inputs.names {
		t.cells = append(t.cells, escape(name))
	}
	t.cells = append(t.cells, "_row", "_sourceFile", "_error")
	return t, t.w.Write(t.cells)
}

func (t *failedTable) write(r *itemResult) error {
	if err := t.inputs.fill(t.cells, r.input); err != nil {
		return err
	}
	tail := t.cells[len(t.inputs.names):]
	tail[0], tail[1] = optionalInt(r.rowNumber), escape(optionalText(r.fileName))
	tail[2] = escape(r.errorMessage)
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
	head := map[string]any{
		"itemIndex": json.Number(strconv.Itoa(int(r.itemIndex))), "rowNumber": nil, "sourceFileName": nil,
		"executionId": r.executionID.String(), "status": r.status,
	}
	if r.rowNumber != nil {
		head["rowNumber"] = json.Number(strconv.Itoa(int(*r.rowNumber)))
	}
	if r.fileName != nil {
		head["sourceFileName"] = *r.fileName
	}
	var err error
	if l.line, err = exactjson.Append(l.line[:0], head); err != nil {
		return err
	}
	l.line = append(l.line[:len(l.line)-1], `,"input":`...)
	l.line = append(append(l.line, r.inputJSON...), ',')
	l.line = append(append(l.line, r.resultJSON[1:]...), '\n')
	_, err = l.w.Write(l.line)
	return err
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
