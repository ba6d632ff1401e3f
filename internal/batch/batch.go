// Package batch keeps the records of batches and decides what happens to them: it starts,
// pauses, resumes, cancels and retries batches, and dispatches their items to workers. It
// must not know HTTP.
//
// The stages of a batch are jobs. The row of the batch shows the progress of each stage, so
// that a stage continues after a crash. In the order of a batch's life:
//
//   - Start (start.go) records the batch.
//   - Package ingest reads the sources and records the items in chunks.
//   - A Dispatcher (dispatch.go) enqueues the items in windows.
//   - Package runner runs the items. It records each as an execution, and counts it.
//   - Package output writes the output package.
//
// control.go and retry.go change the course of a batch.
//
// Every item is counted once, whatever crashes: the statement that records its end also
// counts it, and only the worker with the item's lease or the token of its chunk can record
// it. A statement for an item that is recorded already changes nothing.
package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/catalog"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/internal/storage"
	"tranche/internal/workflow"
	"tranche/jobs"
	"tranche/queries"
)

// Status is the status of a batch (contract A.3.3).
type Status string

// The statuses of a batch. Contract 6.4 gives their order.
const (
	StatusPending               Status = "pending"
	StatusPreProcessing         Status = "pre_processing"
	StatusPreProcessingComplete Status = "pre_processing_complete"
	StatusPreProcessingFailed   Status = "pre_processing_failed"
	StatusProcessing            Status = "processing"
	StatusPostProcessing        Status = "post_processing"
	StatusPostProcessingFailed  Status = "post_processing_failed"
	StatusComplete              Status = "complete"
	StatusPaused                Status = "paused"
	StatusCancelled             Status = "cancelled"
)

// The results of pre-processing (contract 6.4). ResultFailed is followed by a reason.
const (
	ResultValid          = "valid"
	ResultPartiallyValid = "partially_valid"
	ResultFailed         = "failed: "
)

// ErrOvertaken means that a stage no longer belongs to this worker: the batch was paused,
// cancelled or retried, or another worker has recorded more of the stage.
var ErrOvertaken = errors.New("the stage belongs to another worker, or the batch has left it")

// Key identifies a batch.
type Key struct{ TenantID, ID uuid.UUID }

// Config configures a Service.
type Config struct {
	Pool       *pgxpool.Pool
	Jobs       *jobs.Client
	Catalog    *catalog.Catalog
	Dispatcher *Dispatcher
	Executions *execution.Service
	Store      *storage.Store
	Clock      func() time.Time
}

// Service starts, lists, controls and retries batches.
type Service struct {
	Config
	q *queries.Queries
}

// New returns a Service.
func New(c Config) *Service { return &Service{Config: c, q: queries.New()} }

// Batch is the record of a batch (contract A.2.10).
type Batch struct {
	ID              uuid.UUID
	WorkflowID      uuid.UUID
	WorkflowAlias   string
	WorkflowVersion int
	Label           string
	Description     string
	IsTest          bool
	Status          Status
	Attempt         int
	// PreProcessingResult is pending, valid, partially_valid or "failed: reason".
	PreProcessingResult string
	ValidatedItems      int
	RawPackageID        *uuid.UUID
	OutputPackageID     *uuid.UUID // nil until the package is complete
	// EarlierPackageIDs are the output packages of earlier attempts, oldest first.
	EarlierPackageIDs []uuid.UUID
	Total             int
	Completed         int
	Failed            int
	// SourceFailed counts the completed items with a failed data source.
	SourceFailed int
	CreatedAt    time.Time
	UpdatedAt    time.Time
	CompletedAt  *time.Time // nil until the status is final
	Notices      []workflow.Notice
	// CancelRequestedAt is the time of the cancel request; nil without one.
	CancelRequestedAt *time.Time
}

// Pending returns how many items have not ended. The total is always the sum of the
// completed, the failed and the pending items (contract 6.5).
func (b *Batch) Pending() int { return b.Total - b.Completed - b.Failed }

// isBeingCancelled reports whether the batch has a cancel request and has not ended.
func (b *Batch) isBeingCancelled() bool { return b.CancelRequestedAt != nil && b.CompletedAt == nil }

// Get returns a batch of the tenant. If there is none with that id, the error is
// fault.NotFound.
func (s *Service) Get(ctx context.Context, tenantID, id uuid.UUID) (*Batch, error) {
	row, err := s.q.BatchGet(ctx, s.Pool, queries.BatchGetParams{TenantID: tenantID, ID: id})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fault.New(fault.NotFound, "there is no such batch")
	}
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("get batch %s: %w", id, err))
	}
	return fromRow(&row)
}
