// Package batch runs a workflow for many items: it reads their sources, puts
// the items into chunks, feeds these to the workers in windows, records every
// item as an execution when it ends or before, counts what ends, and writes the
// output package. The stages are jobs; the row of the batch says how far each
// has come, so that a stage that crashed goes on where it was. It must not know
// HTTP.
//
// Every item is counted once, in the statement or transaction that records its end,
// whatever is killed: only who holds an item's lease or the token of its chunk can
// record it, and one that is recorded already is passed over.
//
// The life of a batch is in this order: Start (start.go), PreProcess
// (preprocess.go, chunk.go), feeding (feed.go), RunItems (run.go, chunk_run.go,
// chunk_begin.go, chunk_hold.go, chunk_item.go), counting (finish.go, gather.go),
// the output package (PostProcess, postprocess.go).
// control.go, cancel.go and retry.go intervene; turns.go says whose turn it is, and
// circuit.go has items wait whose target is down. Files are read by package itemfile,
// and written by report.go.
package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/catalog"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/limit"
	"tranche/internal/postgres"
	"tranche/internal/storage"
	"tranche/internal/workflow"
	"tranche/jobs"
	"tranche/queries"
)

// Status is where a batch stands (section 3.3 of the interface specification).
type Status string

// The statuses that a batch goes through; decisions 6.4 says in which order.
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

// itemsMax is the greatest number of items of a batch.
const itemsMax = 2_000_000

// Config is what the service works with.
type Config struct {
	Pool       *pgxpool.Pool
	Jobs       *jobs.Client
	Catalog    *catalog.Catalog
	Executions *execution.Service
	Store      *storage.Store
	// Processors is how many processors may compute items at a time; 0 is all that Go
	// uses.
	Processors int
	Clock      func() time.Time
	Log        *slog.Logger
}

// Service runs batches.
type Service struct {
	Config
	q *queries.Queries
	// Each of these does in one statement what many items with effects do at about the
	// same time.
	loads       *gatherer[*loading]
	beginnings  *gatherer[*chunkItem]
	records     *gatherer[*chunkItem]
	checkpoints *gatherer[*checkpoint]
	ends        *gatherer[*ended]
	// turns bounds how much of the work that keeps a processor busy is done at a time.
	turns *limit.Fair
	// calling bounds how many items with effects run at a time: they wait for what they call.
	calling    *limit.Fair
	columns    knownColumns
	circuits   circuits
	heldChunks heldChunks
}

// New returns a service.
func New(c Config) *Service {
	processors := cmp.Or(c.Processors, runtime.GOMAXPROCS(0))
	s := &Service{
		Config: c, q: queries.New(),
		turns: limit.NewFair(processors, 0), calling: limit.NewFair(callingMax, callingGreed),
	}
	s.loads, s.beginnings, s.records = newGatherer(s.load), newGatherer(s.beginItems), newGatherer(s.recordItems)
	s.checkpoints, s.ends = newGatherer(s.checkpoint), newGatherer(s.finishGathered)
	return s
}

// Batch is the record of a batch (section 2.10 of the interface specification).
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
	// SourceFailed counts the completed items of which a data source failed.
	SourceFailed int
	CreatedAt    time.Time
	UpdatedAt    time.Time
	CompletedAt  *time.Time // nil until the status is final
	// Notices tell what befell it.
	Notices []workflow.Notice
	// CancelRequestedAt is when its end was asked for; nil if it was not.
	CancelRequestedAt *time.Time
}

// Pending counts the items that have not ended: at every moment the total is
// the sum of the completed, the failed and the pending (decisions 6.5).
func (b *Batch) Pending() int { return b.Total - b.Completed - b.Failed }

// isBeingCancelled reports whether its end was asked for and has not come.
func (b *Batch) isBeingCancelled() bool { return b.CancelRequestedAt != nil && b.CompletedAt == nil }

// Get returns a batch of the tenant; fault.NotFound if it has none of that id.
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
