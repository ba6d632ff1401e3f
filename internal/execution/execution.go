// Package execution starts, checkpoints, hands over and ends executions. It owns the rows
// of executions and their payloads. Every write to a running execution is fenced by its
// lease. The package must not know HTTP.
//
// The engine drives an execution until it ends or waits, and the state is made durable
// before each effect begins. A synchronous execution is recorded when its first effect
// begins, so one without effects costs one commit. An asynchronous execution is recorded
// with a job, which drives it.
package execution

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/catalog"
	"tranche/internal/engine"
	"tranche/internal/fault"
	"tranche/internal/limit"
	"tranche/internal/postgres"
	"tranche/internal/writebatch"
	"tranche/jobs"
	"tranche/queries"
)

// Config has the dependencies and settings of a Service.
type Config struct {
	Pool    *pgxpool.Pool
	Jobs    *jobs.Client
	Catalog *catalog.Catalog
	Runner  *engine.Runner
	// Callbacks makes the addresses that answer waits; nil makes none.
	Callbacks *Callbacks
	// Linger is how long reads and ends of executions wait for others to share their
	// statement (writebatch.Config). It is for executions that no caller waits for.
	Linger time.Duration
	// Ended, unless nil, is called with the status and number of executions that ended. It
	// is called again if an end is written again.
	Ended func(engine.Status, int)
	// ProcessID owns the leases of this process (internal/liveness).
	ProcessID uuid.UUID
	Clock     func() time.Time
	Log       *slog.Logger
}

// Service runs executions in this process.
type Service struct {
	Config
	// life ends when the process stops; runs are handed over then. Runs outlive the
	// requests that started them. Statements with this context see all tenants.
	life        context.Context
	end         context.CancelFunc
	running     running
	cancellable cancellable
	answers     *limit.PerTenant // bytes of large answers; items have their own limit

	inserts  *writebatch.Writer[lane, *newExecution, bool]
	reads    *writebatch.Writer[lane, reference, *queries.SysExecutionListRunnableRow]
	finishes *writebatch.Writer[lane, *Finished, int64]
	releases *writebatch.Writer[lane, lease, int64]
}

// lane is a queue of group commit. Large items have their own, because a statement with
// megabytes takes a tenth of a second and would delay the small items of other tenants.
type lane bool

// The lanes.
const (
	smallItems lane = false
	largeItems lane = true
)

// laneOf returns the lane of an item of so many bytes.
func laneOf(bytes int) lane {
	if bytes > smallItemBytesMax {
		return largeItems
	}
	return smallItems
}

const smallItemBytesMax = writebatch.BytesMax / 16

// New returns a service; Stop ends it.
func New(c Config) *Service {
	s := &Service{Config: c, answers: limit.NewPerTenant(answerBytesMax)}
	s.life, s.end = context.WithCancel(postgres.AsSystem(context.Background()))
	s.inserts = s.newInserts(insertExecutions)
	s.reads = writebatch.New(writebatch.Config[lane, reference, *queries.SysExecutionListRunnableRow]{
		Linger: c.Linger,
		Write: func(ctx context.Context, _ lane, executions []reference) ([]*queries.SysExecutionListRunnableRow, error) {
			return readExecutions(scoped(ctx, executions, reference.tenant), s.Pool, executions)
		},
	})
	s.finishes = writebatch.New(writebatch.Config[lane, *Finished, int64]{
		Size: (*Finished).bytes, Linger: c.Linger,
		Write: func(ctx context.Context, _ lane, ends []*Finished) ([]int64, error) {
			return finishExecutions(scoped(ctx, ends, (*Finished).tenant), s.Pool, ends)
		},
	})
	s.releases = s.newReleases(requeueExecutions)
	return s
}

func (s *Service) newInserts(insert func(context.Context, queries.DBTX, []*newExecution) ([]bool, error)) *writebatch.Writer[lane, *newExecution, bool] {
	return writebatch.New(writebatch.Config[lane, *newExecution, bool]{
		Size: (*newExecution).bytes,
		Write: func(ctx context.Context, _ lane, executions []*newExecution) ([]bool, error) {
			return insert(scoped(ctx, executions, (*newExecution).tenant), s.Pool, executions)
		},
	})
}

func (s *Service) newReleases(release func(context.Context, queries.DBTX, []lease) ([]int64, error)) *writebatch.Writer[lane, lease, int64] {
	return writebatch.New(writebatch.Config[lane, lease, int64]{
		Write: func(ctx context.Context, _ lane, leases []lease) ([]int64, error) {
			return release(scoped(ctx, leases, lease.tenant), s.Pool, leases)
		},
	})
}

// scoped returns the context of a statement for several executions: it sees the rows of
// their tenant, or of all tenants if they belong to several.
func scoped[T any](ctx context.Context, items []T, tenant func(T) uuid.UUID) context.Context {
	for _, item := range items[1:] {
		if tenant(item) != tenant(items[0]) {
			return postgres.AsSystem(ctx)
		}
	}
	return postgres.WithTenant(ctx, tenant(items[0]))
}

// Stop waits until all synchronous runs have ended or ctx ends. Then it interrupts the
// remaining runs and hands them over to other processes.
func (s *Service) Stop(ctx context.Context) {
	finished := s.running.wait()
	select {
	case <-finished:
	case <-ctx.Done():
	}
	s.end()
	<-finished
}

var (
	// errLeaseLost means that another process has taken the execution over.
	errLeaseLost = fault.New(fault.Internal, "the lease of the execution is lost")
	// ErrNotActive means that the workflow was archived or deleted meanwhile.
	ErrNotActive = fault.New(fault.Conflict, "the workflow is not active").WithSubCode(fault.InvalidWorkflowStatus)
	errUnknown   = fault.New(fault.NotFound, "there is no such execution")
	errStopping  = fault.New(fault.Unavailable, "the service is stopping")
)
