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

// Pause keeps a batch from beginning anything more; items that run go on.
// fault.NotFound if there is none, fault.Conflict where it has ended, is paused
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

// Resume lets a paused batch go on in the phase it left. fault.NotFound if there
// is none, fault.Conflict if it is not paused.
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
		// What ends just now is to have ended when BatchResume counts what runs: a
		// statement sees what was committed when it began, however long it waits.
		paused, err := s.q.BatchGetForUpdate(ctx, tx, queries.BatchGetForUpdateParams{TenantID: tenantID, ID: id})
		if err != nil {
			return err
		}
		row, err := s.q.BatchResume(ctx, tx, queries.BatchResumeParams{TenantID: tenantID, ID: id})
		if err != nil {
			return err
		}
		p := progressOf(queries.BatchProgressGetForUpdateRow(row))
		var job river.JobArgs
		switch {
		case p.status == StatusPostProcessing:
			job = jobs.BatchPostProcessing{TenantID: tenantID, BatchID: id}
		case p.status == StatusProcessing && p.isRetrying:
			job = jobs.BatchItemRetry{TenantID: tenantID, BatchID: id}
		case p.status == StatusProcessing:
			return s.feed(ctx, tx, tenantID, id, plan, p)
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

// refuse says why a batch can not be paused or resumed.
func (s *Service) refuse(ctx context.Context, tenantID, id uuid.UUID, what string) error {
	batch, err := s.Get(ctx, tenantID, id)
	if err != nil {
		return err
	}
	return batch.refusal(what)
}

// refusal says why the batch can not be paused, resumed or cancelled.
func (b *Batch) refusal(what string) error {
	if b.isBeingCancelled() {
		return fault.New(fault.Conflict, "a batch that is being cancelled can not be %s", what)
	}
	return fault.New(fault.Conflict, "a batch of status %s can not be %s", b.Status, what)
}
