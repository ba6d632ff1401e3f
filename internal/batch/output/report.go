package output

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/catalog"
	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/storage"
	"tranche/queries"
)

// Names of the files of an output package (contract 6.7).
const (
	resultsCSVName   = "results.csv"
	resultsJSONLName = "results.jsonl"
	failedCSVName    = "failed.csv"
	manifestName     = "manifest.json"
)

// Limits of a page of results. Several pages are in memory at a time.
const (
	pageItemsMax   = 1000
	pageItemsFirst = 8       // until the size of items is known
	pageBytesMax   = 4 << 20 // of inputs and results, if items are as large as those of earlier pages
)

// report is an output package that is being written.
type report struct {
	packageID uuid.UUID
	files     [4]*reportFile // in the order of the package
	inputs    []string       // columns of the items' inputs
	outputs   []string       // columns of their outputs
	pages     sync.Pool      // of *reportPage
	itemBytes atomic.Int64   // average of the last page; 0 before the first
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

// newReport creates the package. Files are written under ctx after the transaction.
func (w *Writer) newReport(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, row *queries.BatchGetForReportRow) (*report, error) {
	id, err := w.Store.CreatePackage(ctx, tx, tenantID, storage.PackageOutput)
	if err != nil {
		return nil, err
	}
	r := &report{
		packageID: id,
		inputs:    row.InputColumns,
		outputs:   slices.Sorted(slices.Values(row.OutputColumns)), // recorded in the order in which chunks end
		files: [...]*reportFile{
			resultsCSVFile:   {name: resultsCSVName, contentType: "text/csv", role: storage.RoleResults},
			resultsJSONLFile: {name: resultsJSONLName, contentType: "application/jsonl", role: storage.RoleResults},
			failedCSVFile:    {name: failedCSVName, contentType: "text/csv", role: storage.RoleFailed},
			manifestFile:     {name: manifestName, contentType: "application/json", role: storage.RoleManifest},
		},
	}
	r.pages.New = func() any { return newReportPage(r.inputs, r.outputs) }
	for position, f := range r.files {
		if f.writer, err = w.Store.AddFile(ctx, tx, tenantID, id, position, f.role, f.name, f.contentType); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// writeHeaders writes the first rows of the tables.
func (r *report) writeHeaders() error {
	page, _ := r.pages.Get().(*reportPage)
	if err := page.writeHeaders(); err != nil {
		return err
	}
	return r.write(page)
}

// pageItems returns how many items the next page has.
func (r *report) pageItems() int32 {
	size := r.itemBytes.Load()
	if size == 0 {
		return pageItemsFirst
	}
	return int32(min(max(pageBytesMax/size, 1), pageItemsMax))
}

// format writes results to a page.
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

// write appends a page to the files. A page that has become far too large is not used again,
// so that its memory is freed.
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

// manifest describes the package.
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

// reportPage is the rows of some items for the files of a report.
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

// reset empties the page.
func (p *reportPage) reset() {
	for i := range p.texts {
		p.texts[i].Reset()
	}
	clear(p.rows[:])
}
