package batch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/catalog"
	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/itemfile"
	"tranche/internal/storage"
	"tranche/queries"
)

// Names of the files of an output package (decisions 6.7).
const (
	resultsCSVName   = "results.csv"
	resultsJSONLName = "results.jsonl"
	failedCSVName    = "failed.csv"
	manifestName     = "manifest.json"
)

// Limits of a page of results, of which several are in memory at a time.
const (
	pageItemsMax   = 1000
	pageItemsFirst = 8       // before it is known how large items are, when all pages ahead have begun
	pageBytesMax   = 4 << 20 // of inputs and results, if items are as large as those before
	pagesAhead     = 6       // formatted while one is written, which waits for the disk
)

// report is the output package while it is written.
type report struct {
	packageID uuid.UUID
	files     [4]*reportFile // in the order of the package
	inputs    []string       // columns of the items' inputs
	outputs   []string       // and of what came of them
	pages     sync.Pool      // of *reportPage that wait to be used again
	itemBytes atomic.Int64   // of a result, on the average of a page; 0 before the first
}

// reportFile is one file of the report.
type reportFile struct {
	name, contentType string
	role              storage.Role
	writer            *storage.Writer
	rows              int32
}

// Positions of the files in their package.
const (
	resultsCSVFile = iota
	resultsJSONLFile
	failedCSVFile
	manifestFile
)

// newReport makes the package. What is written to the report later, when the transaction
// has committed, is written under ctx.
func (s *Service) newReport(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID) (*report, error) {
	id, err := s.Store.CreatePackage(ctx, tx, tenantID, storage.PackageOutput)
	if err != nil {
		return nil, err
	}
	r := &report{packageID: id, files: [...]*reportFile{
		resultsCSVFile:   {name: resultsCSVName, contentType: "text/csv", role: storage.RoleResults},
		resultsJSONLFile: {name: resultsJSONLName, contentType: "application/jsonl", role: storage.RoleResults},
		failedCSVFile:    {name: failedCSVName, contentType: "text/csv", role: storage.RoleFailed},
		manifestFile:     {name: manifestName, contentType: "application/json", role: storage.RoleManifest},
	}}
	for position, f := range r.files {
		if f.writer, err = s.Store.AddFile(ctx, tx, tenantID, id, position, f.role, f.name, f.contentType); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// begin writes the heads of the files.
func (r *report) begin(inputs, outputs []string) error {
	r.inputs, r.outputs = inputs, sortedColumns(outputs)
	r.pages.New = func() any { return newReportPage(r.inputs, r.outputs) }
	header, _ := r.pages.Get().(*reportPage)
	if err := header.writeHeaders(); err != nil {
		return err
	}
	return r.write(header)
}

// sortedColumns puts columns of outputs in the order of results.csv: chunks end in any
// order, and find columns in that.
func sortedColumns(names []string) []string { return slices.Sorted(slices.Values(names)) }

// pageItems is how many items the next page has.
func (r *report) pageItems() int32 {
	size := r.itemBytes.Load()
	if size == 0 {
		return pageItemsFirst
	}
	return int32(min(max(pageBytesMax/size, 1), pageItemsMax))
}

// format makes a page of results.
func (r *report) format(rows []queries.BatchItemsListResultsRow) (*reportPage, error) {
	page, _ := r.pages.Get().(*reportPage)
	size := 0
	for i := range rows {
		size += len(rows[i].Input) + len(rows[i].Result)
		it, err := newItemResult(&rows[i])
		if err != nil {
			return nil, err
		}
		if err := page.write(it); err != nil {
			return nil, fmt.Errorf("write execution %s: %w", it.executionID, err)
		}
	}
	if len(rows) > 0 {
		r.itemBytes.Store(int64(size / len(rows)))
	}
	return page, page.flush()
}

// write puts a page at the end of the files. One that has become far larger than
// pages should be is not used again, as that would keep its memory.
func (r *report) write(page *reportPage) error {
	largest := 0
	for position := range page.texts {
		f := r.files[position]
		largest = max(largest, page.texts[position].Cap())
		if _, err := page.texts[position].WriteTo(f.writer); err != nil {
			return err
		}
		f.rows += page.rows[position]
	}
	if largest <= 2*pageBytesMax {
		page.reset()
		r.pages.Put(page)
	}
	return nil
}

// manifest says what the package holds.
type manifest struct {
	ExecutionBatchID uuid.UUID      `json:"executionBatchId"`
	WorkflowID       uuid.UUID      `json:"workflowId"`
	WorkflowAlias    string         `json:"workflowAlias"`
	WorkflowVersion  string         `json:"workflowVersion"`
	Label            string         `json:"label"`
	Attempt          int32          `json:"attempt"`
	ExecutedAt       string         `json:"executedAt"`
	CreatedAt        string         `json:"createdAt"`
	Counts           manifestCounts `json:"counts"`
	Files            []manifestItem `json:"files"`
}

type manifestCounts struct {
	Total               int32 `json:"total"`
	Completed           int32 `json:"completed"`
	Failed              int32 `json:"failed"`
	Pending             int32 `json:"pending"`
	UnsuccessfulSources int32 `json:"unsuccessfulSources"`
	Validated           int32 `json:"validated"`
}

type manifestItem struct {
	FileName    string `json:"fileName"`
	Role        string `json:"role"`
	ContentType string `json:"contentType"`
	Size        int64  `json:"size"`
	SHA256      string `json:"sha256"`
	RowCount    int32  `json:"rowCount"`
}

func (r *report) writeManifest(row *queries.BatchGetForReportRow, now time.Time) error {
	m := manifest{
		ExecutionBatchID: row.ID, WorkflowID: row.WorkflowID, WorkflowAlias: row.WorkflowAlias,
		WorkflowVersion: catalog.VersionName(int(row.WorkflowVersion)), Label: row.Label, Attempt: row.Attempt,
		ExecutedAt: exactjson.FormatTime(row.CreatedAt), CreatedAt: exactjson.FormatTime(now),
		Counts: manifestCounts{
			Total: row.ItemsTotal, Completed: row.ItemsCompleted, Failed: row.ItemsFailed,
			Pending:             row.ItemsTotal - row.ItemsCompleted - row.ItemsFailed,
			UnsuccessfulSources: row.ItemsSourceFailed, Validated: row.ValidatedItems,
		},
	}
	for _, f := range r.files[:manifestFile] {
		size, sum, err := f.writer.Flush()
		if err != nil {
			return err
		}
		m.Files = append(m.Files, manifestItem{
			FileName: f.name, Role: string(f.role), ContentType: f.contentType,
			Size: size, SHA256: hex.EncodeToString(sum), RowCount: f.rows,
		})
	}
	encoder := json.NewEncoder(r.files[manifestFile].writer)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(m); err != nil {
		return err
	}
	_, _, err := r.files[manifestFile].writer.Flush()
	return err
}

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
	cells[1], cells[2] = optionalInt(r.rowNumber), itemfile.Escape(queries.Value(r.fileName))
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
	if len(inputs) == 0 {
		inputs = []string{""} // a table without a column that is read is refused
	}
	return &failedTable{w: csv.NewWriter(w), inputs: newColumnSet(inputs...), cells: make([]string, len(inputs)+len(failedTail))}
}

func (t *failedTable) writeHeader() error {
	var header []string
	for _, name := range t.inputs.names {
		header = append(header, itemfile.Header(name))
	}
	return t.w.Write(append(header, failedTail...))
}

func (t *failedTable) write(r *itemResult) error {
	if err := t.inputs.fill(t.cells, r.input); err != nil {
		return err
	}
	tail := t.cells[len(t.inputs.names):]
	tail[0], tail[1] = optionalInt(r.rowNumber), itemfile.Escape(queries.Value(r.fileName))
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
