package batch

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/catalog"
	"tranche/internal/exactjson"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/internal/storage"
	"tranche/internal/workflow"
	"tranche/queries"
)

// Limits of a page of results, of which several are in memory at a time.
const (
	pageItemsMax   = 1000
	pageItemsFirst = 8       // before it is known how large items are, when all pages ahead have begun
	pageBytesMax   = 4 << 20 // of inputs and results, as far as the pages before tell
	pagesAhead     = 6       // that are formatted while one is written, which waits for the disk
)

// PostProcess writes the output package of a batch whose items have ended and
// completes the batch. A batch in another status is left alone. What a writer
// that crashed left behind is replaced.
func (s *Service) PostProcess(ctx context.Context, tenantID, batchID uuid.UUID) error {
	if err := s.postProcess(ctx, tenantID, batchID); !errors.Is(err, errOvertaken) {
		return err
	}
	return nil
}

func (s *Service) postProcess(ctx context.Context, tenantID, batchID uuid.UUID) error {
	row, err := s.q.BatchGetForReport(ctx, s.Pool, queries.BatchGetForReportParams{TenantID: tenantID, ID: batchID})
	if err != nil {
		return postgres.Translate(fmt.Errorf("get batch %s: %w", batchID, err))
	}
	if Status(row.Status) != StatusPostProcessing {
		return nil
	}
	if d := s.takeDraft(ctx, &row); d != nil {
		err := d.finish(ctx)
		if err == nil {
			err = s.writePackage(ctx, tenantID, &row, d.report, d.next)
		}
		err = s.unlessOvertaken(ctx, tenantID, batchID, d.report.packageID, err)
		if err == nil || ctx.Err() != nil || errors.Is(err, errOvertaken) || errors.Is(err, fault.Unavailable) {
			return err
		}
		s.Log.LogAttrs(ctx, slog.LevelWarn, "an output package is written anew", slog.String("executionBatchId", batchID.String()), slog.Any("error", err))
	}
	r, err := s.replaceDraft(ctx, tenantID, &row)
	if errors.Is(err, errOvertaken) {
		// Another writer began in between. It may be one that was cut off while its
		// commit was on its way, so this one begins after it.
		return s.postProcess(ctx, tenantID, batchID)
	}
	if err != nil {
		return err
	}
	if err = r.begin(row.InputColumns, row.OutputColumns); err == nil {
		err = s.writePackage(ctx, tenantID, &row, r, 0)
	}
	return s.unlessOvertaken(ctx, tenantID, batchID, r.packageID, err)
}

// writePackage writes the items from next on to a report, which has those before,
// and completes it.
func (s *Service) writePackage(ctx context.Context, tenantID uuid.UUID, row *queries.BatchGetForReportRow, r *report, next int32) error {
	if err := s.writeItems(ctx, tenantID, row.ID, next, row.ItemsTotal, r); err != nil {
		return fmt.Errorf("write the results of batch %s: %w", row.ID, err)
	}
	if err := r.writeManifest(row, s.Clock()); err != nil {
		return fmt.Errorf("write the manifest of batch %s: %w", row.ID, err)
	}
	return s.complete(ctx, tenantID, row.ID, r)
}

// unlessOvertaken returns the error of a writer, unless what it writes is no
// longer the batch's: another writer, as after a pause, has removed it.
func (s *Service) unlessOvertaken(ctx context.Context, tenantID, batchID, packageID uuid.UUID, err error) error {
	if err == nil {
		return nil
	}
	row, getErr := s.q.BatchGetForReport(ctx, s.Pool, queries.BatchGetForReportParams{TenantID: tenantID, ID: batchID})
	if getErr == nil && (Status(row.Status) != StatusPostProcessing || row.DraftPackageID == nil || *row.DraftPackageID != packageID) {
		return errOvertaken
	}
	return err
}

// replaceDraft gives the batch a new package to be written, and removes the one
// that was not completed.
func (s *Service) replaceDraft(ctx context.Context, tenantID uuid.UUID, row *queries.BatchGetForReportRow) (r *report, err error) {
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		if r, err = s.newReport(ctx, tx, tenantID); err != nil {
			return err
		}
		rows, err := s.q.BatchDraftPackageReplace(ctx, tx, queries.BatchDraftPackageReplaceParams{
			TenantID: tenantID, ID: row.ID, NewPackageID: r.packageID, OldPackageID: row.DraftPackageID,
		})
		if err != nil {
			return fmt.Errorf("begin the package of batch %s: %w", row.ID, err)
		}
		if rows == 0 {
			return errOvertaken
		}
		if row.DraftPackageID == nil {
			return nil
		}
		return s.Store.DeletePackage(ctx, tx, tenantID, *row.DraftPackageID)
	})
	return r, err
}

// report is the output package while it is written.
type report struct {
	packageID uuid.UUID
	files     [4]*reportFile // in the order of the package
	inputs    []string       // columns of the items' inputs,
	// outputs of what came of them.
	outputs   []string
	pages     sync.Pool    // of *reportPage that wait to be used again
	itemBytes atomic.Int64 // of a result, on the average of a page; 0 before the first
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

// newReport makes the package. It is written under ctx, once the transaction is
// committed.
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

// sortedColumns puts the columns of outputs in the order that results.csv has them
// in: ranges of items end in any.
func sortedColumns(names []string) []string { return slices.Sorted(slices.Values(names)) }

// writeItems reads pages of results, from the item first on, and formats them,
// several at a time and each a turn, and writes them in their order.
func (s *Service) writeItems(ctx context.Context, tenantID, batchID uuid.UUID, first, total int32, r *report) error {
	return inOrder(ctx, pagesAhead, func(yield func(queries.BatchItemsListResultsParams) error) error {
		page := queries.BatchItemsListResultsParams{TenantID: tenantID, BatchID: batchID, FirstItem: first}
		for ; page.FirstItem < total; page.FirstItem = page.EndItem {
			page.EndItem = page.FirstItem + r.pageItems()
			if err := yield(page); err != nil {
				return err
			}
		}
		return nil
	}, func(ctx context.Context, page queries.BatchItemsListResultsParams) (*reportPage, error) {
		leave, err := s.turns.take(ctx, tenantID, batchID)
		if err != nil {
			return nil, err
		}
		defer leave()
		rows, err := s.q.BatchItemsListResults(ctx, s.Pool, page)
		if err != nil {
			return nil, postgres.Translate(err)
		}
		lookOut()
		return r.format(rows)
	}, r.write)
}

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

// complete makes the package and the end of the batch visible at once.
func (s *Service) complete(ctx context.Context, tenantID, batchID uuid.UUID, r *report) error {
	return postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		rows, err := s.q.BatchComplete(ctx, tx, queries.BatchCompleteParams{TenantID: tenantID, ID: batchID, PackageID: r.packageID})
		if err != nil {
			return fmt.Errorf("complete batch %s: %w", batchID, err)
		}
		if rows == 0 {
			return errOvertaken
		}
		for position, f := range r.files {
			won, err := f.writer.Complete(ctx, tx)
			if err != nil {
				return err
			}
			if !won {
				return fmt.Errorf("file %s of batch %s has been written twice", f.name, batchID)
			}
			if position == manifestFile {
				continue
			}
			if err := s.Store.SetRowCount(ctx, tx, tenantID, r.packageID, position, f.rows); err != nil {
				return err
			}
		}
		return nil
	})
}

// noticeOutputFailed is the code of a batch's notice that it has no output.
const noticeOutputFailed = "OUTPUT_FAILED"

// FailPostProcessing gives up a batch whose package cannot be written, which its
// notices say, and reports whether it did: a batch in another status is left
// alone.
func (s *Service) FailPostProcessing(ctx context.Context, tenantID, batchID uuid.UUID) (bool, error) {
	notice, err := json.Marshal(workflow.Notice{
		Code: noticeOutputFailed, Level: workflow.LevelError, CreatedAt: s.Clock(),
		Message: "the output could not be written, by an unexpected error; retry the batch with " + string(RetryPostProcessing),
	})
	if err != nil {
		return false, err
	}
	rows, err := s.q.BatchPostProcessingFail(ctx, s.Pool, queries.BatchPostProcessingFailParams{TenantID: tenantID, ID: batchID, Notice: notice})
	if err != nil {
		return false, postgres.Translate(fmt.Errorf("give up batch %s: %w", batchID, err))
	}
	return rows > 0, nil
}
