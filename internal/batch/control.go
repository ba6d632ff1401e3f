package batch

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/jobs"
	"tranche/queries"
)

// Pause stops a batch from beginning more items. Items that run finish. The error is
// fault.NotFound for an unknown batch, and fault.Conflict for one that has ended, is paused
// or is being cancelled.
func (s *Service) Pause(ctx context.Context, tenantID, id uuid.UUID) error {
	rows, err := s.q.BatchPause(ctx, s.Pool, queries.BatchPauseParams{TenantID: tenantID, ID: id})
	if err != nil {
		return postgres.Translate(fmt.Errorf("pause batch %s: %w", id, err))
	}
	if rows == 0 {
		return s.refuse(ctx, tenantID, id, "paused")
	}
	return nil
}

// Resume lets a paused batch continue in the phase in which it was paused. The error is
// fault.NotFound for an unknown batch, and fault.Conflict for one that is not paused.
func (s *Service) Resume(ctx context.Context, tenantID, id uuid.UUID) error {
	batch, err := s.Get(ctx, tenantID, id)
	if err != nil {
		return err
	}
	_, plan, err := s.Catalog.Plan(ctx, tenantID, batch.WorkflowID)
	if err != nil {
		return err
	}
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		// BatchResume counts the running items. A statement sees only what was committed
		// when it began, however long it waits for the row. So the row is locked before.
		paused, err := s.q.BatchGetForUpdate(ctx, tx, queries.BatchGetForUpdateParams{TenantID: tenantID, ID: id})
		if err != nil {
			return err
		}
		row, err := s.q.BatchResume(ctx, tx, queries.BatchResumeParams{TenantID: tenantID, ID: id})
		if err != nil {
			return err
		}
		p := ProgressOf(queries.BatchProgressGetForUpdateRow(row))
		var job river.JobArgs
		switch {
		case p.status == StatusPostProcessing:
			job = jobs.BatchPostProcessing{TenantID: tenantID, BatchID: id}
		case p.status == StatusProcessing && p.isRetrying:
			job = jobs.BatchItemRetry{TenantID: tenantID, BatchID: id}
		case p.status == StatusProcessing:
			return s.Dispatcher.DispatchTx(ctx, tx, Key{tenantID, id}, plan, p)
		default:
			job = jobs.BatchPreProcessing{TenantID: tenantID, BatchID: id, Attempt: paused.Attempt}
		}
		_, err = s.Jobs.InsertTx(ctx, tx, job, nil)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return s.refuse(ctx, tenantID, id, "resumed")
	}
	if err != nil {
		return fmt.Errorf("resume batch %s: %w", id, err)
	}
	return nil
}

// Cancel requests the end of a batch. Items that do not run are cancelled, items that run
// finish, and the output of all items is still written (contract 6.4). A second request
// changes nothing. The error is fault.NotFound for an unknown batch, and fault.Conflict for
// one that has ended.
func (s *Service) Cancel(ctx context.Context, tenantID, id uuid.UUID) error {
	err := postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		row, err := s.q.BatchCancelRequest(ctx, tx, queries.BatchCancelRequestParams{
			TenantID: tenantID, ID: id, Unread: ResultFailed + "the batch was cancelled before all items were read",
		})
		if err != nil {
			return err
		}
		if Status(row.Status) == StatusProcessing {
			_, err = s.Jobs.InsertTx(ctx, tx, jobs.BatchCancellation{TenantID: tenantID, BatchID: id}, nil)
		} else if row.WasPaused {
			_, err = s.Jobs.InsertTx(ctx, tx, jobs.BatchPostProcessing{TenantID: tenantID, BatchID: id}, nil)
		}
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		batch, err := s.Get(ctx, tenantID, id)
		switch {
		case err != nil:
			return err
		case batch.isBeingCancelled():
			return nil
		default:
			return batch.refusal("cancelled")
		}
	}
	if err != nil {
		return fmt.Errorf("cancel batch %s: %w", id, err)
	}
	return nil
}

// refuse returns why a batch cannot be paused or resumed.
func (s *Service) refuse(ctx context.Context, tenantID, id uuid.UUID, action string) error {
	batch, err := s.Get(ctx, tenantID, id)
	if err != nil {
		return err
	}
	return batch.refusal(action)
}

// refusal returns why the batch cannot be paused, resumed or cancelled.
func (b *Batch) refusal(action string) error {
	if b.isBeingCancelled() {
		return fault.New(fault.Conflict, "a batch that is being cancelled cannot be %s", action)
	}
	return fault.New(fault.Conflict, "a batch of status %s cannot be %s", b.Status, action)
}
