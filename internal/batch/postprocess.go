package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/fault"
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
	if d := s.takeDraft(ctx, &row); d != nil {
		err := d.finish(ctx)
		if err == nil {
			err = s.writePackage(ctx, tenantID, &row, d.report, d.next)
		}
		err = s.unlessOvertaken(ctx, tenantID, batchID, d.report.packageID, err)
		if errors.Is(err, errOvertaken) {
			return s.postProcess(ctx, tenantID, batchID) // for the same reason as below
		}
		if err == nil || ctx.Err() != nil || errors.Is(err, fault.Unavailable) {
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
// longer the batch's: another writer, as after a pause, has removed it. A package that
// this one began can be replaced only by one that found it there, so that one's job
// came after this one's and goes on with the batch, whoever dies. Of a draft that this
// one took over that is not so.
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
