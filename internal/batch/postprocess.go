package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/limit"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/queries"
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
	r, err := s.beginPackage(ctx, tenantID, &row)
	if errors.Is(err, errOvertaken) {
		// Another writer began in between. It may be one that was cut off while its
		// commit was on its way, so this one begins after it.
		return s.postProcess(ctx, tenantID, batchID)
	}
	if err != nil {
		return err
	}
	return s.unlessOvertaken(ctx, tenantID, batchID, r.packageID, s.writePackage(ctx, tenantID, &row, r))
}

// writePackage writes all items to a report and completes it.
func (s *Service) writePackage(ctx context.Context, tenantID uuid.UUID, row *queries.BatchGetForReportRow, r *report) error {
	if err := r.begin(row.InputColumns, row.OutputColumns); err != nil {
		return fmt.Errorf("begin the results of batch %s: %w", row.ID, err)
	}
	if err := s.writeItems(ctx, tenantID, row.ID, row.ItemsTotal, r); err != nil {
		return fmt.Errorf("write the results of batch %s: %w", row.ID, err)
	}
	if err := r.writeManifest(row, s.Clock()); err != nil {
		return fmt.Errorf("write the manifest of batch %s: %w", row.ID, err)
	}
	return s.complete(ctx, tenantID, row.ID, r)
}

// unlessOvertaken returns the error of a writer, or errOvertaken if another writer has
// replaced its package. Only a writer that saw this one's package can replace it, so the
// job of that writer came later and goes on with the batch.
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

// beginPackage records a new package as the one that is being written for the batch, and
// deletes the package that an earlier writer did not complete.
func (s *Service) beginPackage(ctx context.Context, tenantID uuid.UUID, row *queries.BatchGetForReportRow) (r *report, err error) {
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		if r, err = s.newReport(ctx, tx, tenantID); err != nil {
			return err
		}
		rows, err := s.q.BatchPackageBegin(ctx, tx, queries.BatchPackageBeginParams{
			TenantID: tenantID, ID: row.ID, Attempt: row.Attempt, NewPackageID: r.packageID, OldPackageID: row.DraftPackageID,
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

// writeItems reads pages of results and formats them, several at a time and each a
// turn, and writes them in their order.
func (s *Service) writeItems(ctx context.Context, tenantID, batchID uuid.UUID, total int32, r *report) error {
	return inOrder(ctx, pagesAhead, func(yield func(queries.BatchItemsListResultsParams) error) error {
		page := queries.BatchItemsListResultsParams{TenantID: tenantID, BatchID: batchID}
		for ; page.FirstItem < total; page.FirstItem = page.EndItem {
			page.EndItem = page.FirstItem + r.pageItems()
			if err := yield(page); err != nil {
				return err
			}
		}
		return nil
	}, func(ctx context.Context, page queries.BatchItemsListResultsParams) (*reportPage, error) {
		leave, err := s.turns.Acquire(ctx, limit.Request{TenantID: tenantID, BatchID: batchID})
		if err != nil {
			return nil, err
		}
		defer leave()
		rows, err := s.q.BatchItemsListResults(ctx, s.Pool, page)
		if err != nil {
			return nil, postgres.Translate(err)
		}
		return r.format(rows)
	}, r.write)
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
