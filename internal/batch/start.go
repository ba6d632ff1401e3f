package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/catalog"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/jobs"
	"tranche/queries"
)

// Request asks for a batch. Its sources are read in this order: Items, Files, Packages
// (contract 6.2).
type Request struct {
	TenantID    uuid.UUID
	PrincipalID string
	IsTest      bool
	Alias       string // of the workflow
	Version     string // of the workflow: v1, or latest
	Label       string // empty: the alias
	Description string
	Items       []any    // objects
	Files       []string // stored names
	Packages    []string // ids
	CustomInput map[string]any
	// Recorded is called in the transaction that records the batch, if it is not nil. Its
	// error undoes the transaction.
	Recorded func(ctx context.Context, tx pgx.Tx, started *Started) error
}

// firstAttempt is the first attempt of a batch.
const firstAttempt = 1

// HasSources reports whether the request names any source of items.
func (r *Request) HasSources() bool { return len(r.Items)+len(r.Files)+len(r.Packages) > 0 }

// Started is a batch that was accepted.
type Started struct {
	ID         uuid.UUID
	Workflow   *catalog.Workflow
	ExecutedAt time.Time
	// RawPackageID is the package made of the request's files; nil without files.
	RawPackageID *uuid.UUID
}

// Start records a batch and enqueues its first stage. The error is fault.Invalid without
// any source, fault.NotFound for an unknown workflow, file or package, and fault.Conflict
// for a workflow that is not active.
func (s *Service) Start(ctx context.Context, r Request) (*Started, error) {
	if !r.HasSources() {
		return nil, fault.New(fault.Invalid, "a batch needs a source of items: attachmentFileNames, workflowInput.items or workflowInput.rawPackageIds").
			WithDetails(fault.Detail{Field: "workflowInput.items", Message: "is required if the request names no file and no package", SubCode: fault.MissingRequiredField})
	}
	started, err := s.tryStart(ctx, r)
	if errors.Is(err, execution.ErrNotActive) {
		// Another process has archived it, so the cached record is out of date.
		s.Catalog.Forget(started.Workflow.ID)
		started, err = s.tryStart(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	return started, nil
}

func (s *Service) tryStart(ctx context.Context, r Request) (*Started, error) {
	w, _, err := s.Catalog.Resolve(ctx, r.TenantID, r.Alias, r.Version)
	if err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	started := &Started{ID: id, Workflow: w, ExecutedAt: s.Clock()}
	params, err := insertion(&r, started)
	if err != nil {
		return nil, err
	}
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		if err := s.insertTx(ctx, tx, &r, &params); err != nil {
			return err
		}
		started.RawPackageID = params.RawPackageID
		if _, err := s.Jobs.InsertTx(ctx, tx, jobs.BatchPreProcessing{TenantID: r.TenantID, BatchID: id, Attempt: firstAttempt}, nil); err != nil || r.Recorded == nil {
			return err
		}
		return r.Recorded(ctx, tx, started)
	})
	return started, err
}

// insertTx finds the sources of a batch and records the batch.
func (s *Service) insertTx(ctx context.Context, tx pgx.Tx, r *Request, params *queries.BatchInsertParams) (err error) {
	if params.SourcePackageIds, err = s.findPackages(ctx, tx, r); err != nil {
		return err
	}
	if params.RawPackageID, err = s.packFiles(ctx, tx, r); err != nil {
		return err
	}
	rows, err := s.q.BatchInsert(ctx, tx, *params)
	if err != nil {
		return fmt.Errorf("insert batch %s: %w", params.ID, err)
	}
	if rows == 0 {
		return execution.ErrNotActive
	}
	return nil
}

func insertion(r *Request, started *Started) (queries.BatchInsertParams, error) {
	params := queries.BatchInsertParams{
		ID: started.ID, TenantID: r.TenantID, WorkflowID: started.Workflow.ID, PrincipalID: r.PrincipalID,
		Label: r.Label, Description: r.Description, IsTest: r.IsTest, CreatedAt: started.ExecutedAt,
	}
	if params.Label == "" {
		params.Label = started.Workflow.Alias
	}
	var err error
	params.Items, params.CustomInput, err = inputs(r)
	return params, err
}

// inputs encodes the items of a request and their custom input.
func inputs(r *Request) (items, custom []byte, err error) {
	list := r.Items
	if list == nil {
		list = []any{}
	}
	if items, err = exactjson.Encode(list); err != nil {
		return nil, nil, fmt.Errorf("encode the items: %w", err)
	}
	if r.CustomInput != nil {
		if custom, err = exactjson.Encode(r.CustomInput); err != nil {
			return nil, nil, fmt.Errorf("encode the custom input: %w", err)
		}
	}
	return items, custom, nil
}

// ErrNothingToRepeat means that a scheduled batch has no sources of its own, and that no
// earlier batch of the workflow has sources to repeat.
var ErrNothingToRepeat = fault.New(fault.NotFound, "the workflow has no earlier batch whose sources can be used again")

// RecordTx records a batch of the workflow under the given id in the caller's transaction.
// The caller enqueues a job that calls Begin in the same transaction. RecordTx ignores the
// request's alias and version. A batch without sources takes those of the workflow's newest
// batch; a batch that is no test ignores test batches. If there is none, the error is
// ErrNothingToRepeat. Other errors are those of Start.
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

// Begin enqueues the first stage of a batch that RecordTx recorded. A second call has no
// further effect on the batch.
func (s *Service) Begin(ctx context.Context, tenantID, id uuid.UUID) error {
	_, err := s.Jobs.Insert(ctx, jobs.BatchPreProcessing{TenantID: tenantID, BatchID: id, Attempt: firstAttempt}, nil)
	return err
}
