// Package execution starts, checkpoints, hands over and ends executions. It
// owns the rows of executions and their payloads: every write to one that runs
// is fenced by its lease. It must not know HTTP.
//
// One path serves every kind of run. The engine drives an execution until it
// ends or has to wait, and the state is made durable before each effect begins.
// A synchronous run writes nothing before its first effect, so a graph without
// effects costs one commit; an asynchronous one is recorded first, and driven at once
// where there is a place for it, else by a job.
package execution

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/catalog"
	"tranche/internal/engine"
	"tranche/internal/fault"
	"tranche/internal/limit"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/jobs"
	"tranche/queries"
)

// Config is what the service works with.
type Config struct {
	Pool    *pgxpool.Pool
	Jobs    *jobs.Client
	Catalog *catalog.Catalog
	Runner  *engine.Runner
	// Callbacks makes the addresses that answer waits; nil gives none.
	Callbacks *Callbacks
	// Linger is how long reads and ends of executions wait for others to share their
	// statement, while there are any: for executions that no caller waits for.
	Linger time.Duration
	// Ended, unless nil, is told of every execution that this service brought to an end,
	// again if the end has to be written again; of many at once by their number.
	Ended func(engine.Status, int)
	// Background drives what Start accepts, for as many as it has places; the rest, and
	// everything if it is nil, is left to jobs.
	Background *Service
	// Callers are those who wait for Run, of all services of the process; nil is those
	// of this one alone.
	Callers *Callers
	// ProcessID holds the leases of this process (internal/liveness).
	ProcessID uuid.UUID
	Clock     func() time.Time
	Log       *slog.Logger
}

// Service runs executions in this process.
type Service struct {
	Config
	// life ends when the process stops: what is being driven is handed over. Its
	// statements see all tenants; a run narrows it to its own.
	life    context.Context // runs outlive the request that started them
	end     context.CancelFunc
	running running
	places  chan struct{} // taken by what Start accepted and this service drives
	held    held
	answers *limit.PerTenant // memory of large answers, not of items

	inserts  lanes[*newExecution, bool]
	reads    coalescer[reference, *queries.SysExecutionListForRunRow]
	finishes lanes[*Finished, int64]
	releases coalescer[lease, int64]
}

// New returns a service; Stop ends it.
func New(c Config) *Service {
	s := &Service{Config: c, places: make(chan struct{}, placesMax), answers: limit.NewPerTenant(answerBytesMax)}
	if s.Callers == nil {
		s.Callers = NewCallers(c.Clock)
	}
	s.life, s.end = context.WithCancel(postgres.AsSystem(context.Background()))
	s.inserts.set((*newExecution).bytes, 0, func(ctx context.Context, executions []*newExecution) ([]bool, error) {
		return insertAll(whose(ctx, executions, (*newExecution).tenant), s.Pool, executions)
	})
	s.finishes.set((*Finished).bytes, c.Linger, func(ctx context.Context, ends []*Finished) ([]int64, error) {
		return finishAll(whose(ctx, ends, (*Finished).tenant), s.Pool, ends)
	})
	s.reads.linger = c.Linger
	s.reads.write = func(ctx context.Context, executions []reference) ([]*queries.SysExecutionListForRunRow, error) {
		return readAll(whose(ctx, executions, reference.tenant), s.Pool, executions)
	}
	s.releases.aside = s.running.Go // a stop waits for it
	s.releases.write = func(ctx context.Context, leases []lease) ([]int64, error) {
		return releaseAll(whose(ctx, leases, lease.tenant), s.Pool, leases)
	}
	return s
}

// Stop waits until no synchronous run is left or ctx ends, then interrupts the
// others and hands them to other processes.
func (s *Service) Stop(ctx context.Context) {
	finished := s.running.wait()
	select {
	case <-finished:
	case <-ctx.Done():
	}
	s.end()
	<-finished
}

// Request is an execution that a caller asks for. The input matches the
// workflow's schema and has its defaults.
type Request struct {
	TenantID    uuid.UUID
	PrincipalID string
	WorkflowID  uuid.UUID
	Plan        *workflow.Plan
	Input       map[string]any
	BorrowerID  *string
	BillableID  *string
	Tags        []string
	IsTest      bool
	RescoreOf   *uuid.UUID
	// Recorded, unless nil, joins the transaction that records the execution,
	// with its result if it has ended by then. Its error undoes the recording.
	Recorded func(ctx context.Context, tx pgx.Tx, e Execution) error
}

// Execution is what a caller is told of one it started.
type Execution struct {
	ID        uuid.UUID
	Status    engine.Status
	CreatedAt time.Time
	// Result is nil while the execution goes on.
	Result *Result
}

var (
	// errLeaseLost says that another process has taken the execution over.
	errLeaseLost = fault.New(fault.Internal, "the lease of the execution is lost")
	// ErrNotActive says that the workflow was archived or deleted meanwhile.
	ErrNotActive = fault.New(fault.Conflict, "the workflow is not active").WithSubCode(fault.InvalidWorkflowStatus)
	errUnknown   = fault.New(fault.NotFound, "there is no such execution")
	errStopping  = fault.New(fault.Unavailable, "the service is stopping")
)
