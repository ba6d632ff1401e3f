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
	"tranche/internal/itemfile"
	"tranche/internal/postgres"
	"tranche/internal/storage"
	"tranche/jobs"
	"tranche/queries"
)

// Request is a batch that a caller asks for. Its sources of items are read in
// this order: Items, Files, Packages (decisions 6.2).
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
	// Recorded, unless nil, joins the transaction that records the batch. Its
	// error undoes it.
	Recorded func(ctx context.Context, tx pgx.Tx, started *Started) error
}

// firstAttempt is the attempt that a batch begins with.
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

// Start records a batch and enqueues its first stage. Without any source of
// items it is fault.Invalid; an unknown workflow, file or package is
// fault.NotFound; a workflow that is not active is fault.Conflict.
func (s *Service) Start(ctx context.Context, r Request) (*Started, error) {
	if !r.HasSources() {
		return nil, fault.New(fault.Invalid, "a batch needs a source of items: attachmentFileNames, workflowInput.items or workflowInput.rawPackageIds").
			WithDetails(fault.Detail{Field: "workflowInput.items", Message: "is required where no file and no package is named", SubCode: fault.MissingRequiredField})
	}
	started, err := s.tryStart(ctx, r)
	if errors.Is(err, execution.ErrNotActive) {
		// It was archived by another process: what is remembered is out of date.
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

// insertTx records a batch after finding its sources.
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

// inputs writes the items of a request and what they share.
func inputs(r *Request) (items, custom []byte, err error) {
	list := r.Items
	if list == nil {
		list = []any{}
	}
	if items, err = exactjson.Encode(list); err != nil {
		return nil, nil, fmt.Errorf("write the items: %w", err)
	}
	if r.CustomInput != nil {
		if custom, err = exactjson.Encode(r.CustomInput); err != nil {
			return nil, nil, fmt.Errorf("write the custom input: %w", err)
		}
	}
	return items, custom, nil
}

// packFiles makes a package of the files that the request names.
func (s *Service) packFiles(ctx context.Context, tx pgx.Tx, r *Request) (*uuid.UUID, error) {
	if len(r.Files) == 0 {
		return nil, nil
	}
	files, err := s.findFiles(ctx, tx, r)
	if err != nil {
		return nil, err
	}
	id, err := s.Store.CreateRawPackage(ctx, tx, r.TenantID, files)
	return &id, err
}

// findFiles reads the records of the files that the request names.
func (s *Service) findFiles(ctx context.Context, tx pgx.Tx, r *Request) ([]storage.Attachment, error) {
	stored, err := s.Store.Stored(ctx, tx, r.TenantID, r.Files)
	if err != nil {
		return nil, err
	}
	files := make([]storage.Attachment, len(r.Files))
	var unknown, unreadable []fault.Detail
	for i, name := range r.Files {
		field := fmt.Sprintf("attachmentFileNames[%d]", i)
		file, ok := stored[name]
		if !ok {
			unknown = append(unknown, fault.Detail{Field: field, Message: "names no file that has been uploaded"})
		} else if _, err := itemfile.ContentType(file.FileName); err != nil {
			unreadable = append(unreadable, fault.Detail{Field: field, Message: "names a file from which no items can be read"})
		}
		files[i] = file
	}
	if len(unknown) > 0 {
		return nil, fault.New(fault.NotFound, "there is no such file").WithDetails(unknown...)
	}
	if len(unreadable) > 0 {
		return nil, fault.InvalidRequest(unreadable...)
	}
	return files, nil
}

// findPackages reads the ids of the packages that the request names.
func (s *Service) findPackages(ctx context.Context, tx pgx.Tx, r *Request) ([]uuid.UUID, error) {
	ids := make([]uuid.UUID, len(r.Packages))
	for i, text := range r.Packages {
		if id, err := uuid.Parse(text); err == nil && id.String() == text {
			ids[i] = id // else it stays the nil id, which no package has
		}
	}
	known, err := s.Store.KnownPackages(ctx, tx, r.TenantID, ids)
	if err != nil {
		return nil, err
	}
	var unknown []fault.Detail
	for i, id := range ids {
		if !known[id] {
			unknown = append(unknown, fault.Detail{Field: fmt.Sprintf("workflowInput.rawPackageIds[%d]", i), Message: "names no package"})
		}
	}
	if len(unknown) > 0 {
		return nil, fault.New(fault.NotFound, "there is no such package").WithDetails(unknown...)
	}
	return ids, nil
}
