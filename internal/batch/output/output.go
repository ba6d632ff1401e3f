// Package output writes the output packages of batches: results.csv, results.jsonl,
// failed.csv and a manifest. It must not know HTTP or how items run.
package output

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/batch"
	"tranche/internal/pipeline"
	"tranche/internal/postgres"
	"tranche/internal/storage"
	"tranche/internal/workflow"
	"tranche/queries"
)

// Config configures a Writer.
type Config struct {
	Pool  *pgxpool.Pool
	Store *storage.Store
	// Processors bounds how much of the work that needs a processor runs concurrently.
	Processors *batch.Processors
	Clock      func() time.Time
}

// Writer writes the output packages of batches.
type Writer struct {
	Config
	q *queries.Queries
}

// New returns a Writer.
func New(c Config) *Writer { return &Writer{Config: c, q: queries.New()} }

// PostProcess writes the output package of a batch whose items have ended, and completes the
// batch. It leaves batches in other statuses alone. It deletes the package that an earlier
// writer did not complete.
func (w *Writer) PostProcess(ctx context.Context, key batch.Key) error {
	for {
		row, err := w.getBatch(ctx, key)
		if err != nil || batch.Status(row.Status) != batch.StatusPostProcessing {
			return err
		}
		r, err := w.beginPackage(ctx, key, &row)
		if errors.Is(err, batch.ErrOvertaken) {
			// Another writer began a package meanwhile. It may be a writer that was considered
			// dead and whose commit arrived late, so this one begins after it.
			continue
		}
		if err != nil {
			return err
		}
		err = w.write(ctx, key, &row, r)
		if err != nil && w.isReplaced(ctx, key, r.packageID) {
			// Only a writer that saw this package can replace it, so the job of that writer
			// came later and completes the batch.
			return nil
		}
		return err
	}
}

func (w *Writer) getBatch(ctx context.Context, key batch.Key) (queries.BatchGetForReportRow, error) {
	row, err := w.q.BatchGetForReport(ctx, w.Pool, queries.BatchGetForReportParams{TenantID: key.TenantID, ID: key.ID})
	if err != nil {
		return row, postgres.Translate(fmt.Errorf("get batch %s: %w", key.ID, err))
	}
	return row, nil
}

// isReplaced reports whether the batch no longer has the package that is being written.
func (w *Writer) isReplaced(ctx context.Context, key batch.Key, packageID uuid.UUID) bool {
	row, err := w.getBatch(ctx, key)
	return err == nil && (batch.Status(row.Status) != batch.StatusPostProcessing || row.DraftPackageID == nil || *row.DraftPackageID != packageID)
}

// beginPackage records a new package as the one that is being written for the batch, and
// deletes the package that an earlier writer did not complete.
func (w *Writer) beginPackage(ctx context.Context, key batch.Key, row *queries.BatchGetForReportRow) (*report, error) {
	var r *report
	err := postgres.InTx(ctx, w.Pool, func(tx pgx.Tx) error {
		var err error
		if r, err = w.newReport(ctx, tx, key.TenantID, row); err != nil {
			return err
		}
		rows, err := w.q.BatchPackageBegin(ctx, tx, queries.BatchPackageBeginParams{
			TenantID: key.TenantID, ID: key.ID, Attempt: row.Attempt, NewPackageID: r.packageID, OldPackageID: row.DraftPackageID,
		})
		if err != nil {
			return fmt.Errorf("begin the package of batch %s: %w", key.ID, err)
		}
		if rows == 0 {
			return batch.ErrOvertaken
		}
		if row.DraftPackageID == nil {
			return nil
		}
		return w.Store.DeletePackage(ctx, tx, key.TenantID, *row.DraftPackageID)
	})
	return r, err
}

// write writes the files of a report, and completes the batch.
func (w *Writer) write(ctx context.Context, key batch.Key, row *queries.BatchGetForReportRow, r *report) error {
	if err := w.writeItems(ctx, key, row.ItemsTotal, r); err != nil {
		return fmt.Errorf("write the results of batch %s: %w", key.ID, err)
	}
	if err := r.writeManifest(row, w.Clock()); err != nil {
		return fmt.Errorf("write the manifest of batch %s: %w", key.ID, err)
	}
	return w.complete(ctx, key, r)
}

// writeItems reads and formats pages of results, several concurrently, and writes them in
// their order.
func (w *Writer) writeItems(ctx context.Context, key batch.Key, total int32, r *report) error {
	if err := r.writeHeaders(); err != nil {
		return err
	}
	return pipeline.Ordered(ctx, w.Processors.Count, func(yield func(queries.BatchItemsListResultsParams) error) error {
		page := queries.BatchItemsListResultsParams{TenantID: key.TenantID, BatchID: key.ID}
		for ; page.FirstItem < total; page.FirstItem = page.EndItem {
			page.EndItem = page.FirstItem + r.pageItems()
			if err := yield(page); err != nil {
				return err
			}
		}
		return nil
	}, func(ctx context.Context, page queries.BatchItemsListResultsParams) (*reportPage, error) {
		release, err := w.Processors.Acquire(ctx, key)
		if err != nil {
			return nil, err
		}
		defer release()
		rows, err := w.q.BatchItemsListResults(ctx, w.Pool, page)
		if err != nil {
			return nil, postgres.Translate(err)
		}
		return r.format(rows)
	}, r.write)
}

// complete makes the package and the end of the batch visible in one transaction.
func (w *Writer) complete(ctx context.Context, key batch.Key, r *report) error {
	return postgres.InTx(ctx, w.Pool, func(tx pgx.Tx) error {
		rows, err := w.q.BatchComplete(ctx, tx, queries.BatchCompleteParams{TenantID: key.TenantID, ID: key.ID, PackageID: r.packageID})
		if err != nil {
			return fmt.Errorf("complete batch %s: %w", key.ID, err)
		}
		if rows == 0 {
			return batch.ErrOvertaken
		}
		for position, f := range r.files {
			won, err := f.writer.Complete(ctx, tx)
			if err != nil {
				return err
			}
			if !won {
				return fmt.Errorf("file %s of batch %s was written twice", f.name, key.ID)
			}
			if position == manifestFile {
				continue
			}
			if err := w.Store.SetRowCount(ctx, tx, key.TenantID, r.packageID, position, f.rows); err != nil {
				return err
			}
		}
		return nil
	})
}

// noticeOutputFailed is the code of the notice that a batch has no output.
const noticeOutputFailed = "OUTPUT_FAILED"

// FailPostProcessing ends a batch whose package cannot be written, adds a notice, and reports
// whether it did. It leaves batches in other statuses alone.
func (w *Writer) FailPostProcessing(ctx context.Context, key batch.Key) (bool, error) {
	notice, err := json.Marshal(workflow.Notice{
		Code: noticeOutputFailed, Level: workflow.LevelError, CreatedAt: w.Clock(),
		Message: "the output could not be written because of an unexpected error; retry the batch with " + string(batch.RetryPostProcessing),
	})
	if err != nil {
		return false, err
	}
	rows, err := w.q.BatchPostProcessingFail(ctx, w.Pool, queries.BatchPostProcessingFailParams{TenantID: key.TenantID, ID: key.ID, Notice: notice})
	if err != nil {
		return false, postgres.Translate(fmt.Errorf("abandon the output of batch %s: %w", key.ID, err))
	}
	return rows > 0, nil
}
