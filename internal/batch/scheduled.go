package batch

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/catalog"
	"tranche/internal/fault"
	"tranche/jobs"
	"tranche/queries"
)

// ErrNothingToRepeat says that a batch without sources of its own has none to
// repeat either.
var ErrNothingToRepeat = fault.New(fault.NotFound, "the workflow has no batch whose sources could be repeated")

// CheckSources fails as Start would where the files or packages that the
// request names are unknown or cannot be read.
func (s *Service) CheckSources(ctx context.Context, tx pgx.Tx, r Request) error {
	if _, err := s.findPackages(ctx, tx, &r); err != nil {
		return err
	}
	_, err := s.findFiles(ctx, tx, &r)
	return err
}

// RecordTx records a batch of the workflow under the given id in the caller's
// transaction, whose further work is to enqueue what calls Begin. The request's
// alias and version are not looked up. Without sources of its own the batch
// repeats those of the workflow's newest one, that of a test only if it is one;
// ErrNothingToRepeat if there is none. Other errors are those of Start.
func (s *Service) RecordTx(ctx context.Context, tx pgx.Tx, id, workflowID uuid.UUID, r Request) error {
	workflow := &catalog.Workflow{ID: workflowID, Alias: r.Alias}
	params, err := insertion(&r, &Started{ID: id, Workflow: workflow, ExecutedAt: s.Clock()})
	if err != nil {
		return err
	}
	if r.HasSources() {
		return s.insertTx(ctx, tx, &r, &params)
	}
	rows, err := s.q.BatchInsertRepeated(ctx, tx, queries.BatchInsertRepeatedParams{
		ID: params.ID, TenantID: params.TenantID, WorkflowID: params.WorkflowID, PrincipalID: params.PrincipalID,
		Label: params.Label, IsTest: params.IsTest, CustomInput: params.CustomInput, CreatedAt: params.CreatedAt,
	})
	if err != nil {
		return fmt.Errorf("insert batch %s: %w", id, err)
	}
	if rows == 0 {
		return ErrNothingToRepeat
	}
	return nil
}

// Begin enqueues the first stage of a batch that RecordTx recorded. To do it
// twice is harmless.
func (s *Service) Begin(ctx context.Context, tenantID, id uuid.UUID) error {
	_, err := s.Jobs.Insert(ctx, jobs.BatchPreProcessing{TenantID: tenantID, BatchID: id, Attempt: firstAttempt}, nil)
	return err
}
