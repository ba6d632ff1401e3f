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

// Config is what the service works with.
type Config struct {
	Pool    *pgxpool.Pool
	Jobs    *jobs.Client
	Catalog *catalog.Catalog
	Runner  *engine.Runner
	// Callbacks makes the addresses that answer waits; nil gives none.
	Callbacks *Callbacks
	// Linger is how long reads and ends of executions wait for others to share their
	// statement (writebatch.Config): for executions that no caller waits for.
	Linger time.Duration
	// Ended, unless nil, is told of every execution that this service brought to an end,
	// again if the end has to be written again; of many at once by their number.
	Ended func(engine.Status, int)
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
	life        context.Context // runs outlive the request that started them
	end         context.CancelFunc
	running     running
	cancellable cancellable
	answers     *limit.PerTenant // memory of large answers, not of items

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
func laneOf(bytes int) lane { return bytes > smallItemBytesMax }

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

var (
	// errLeaseLost says that another process has taken the execution over.
	errLeaseLost = fault.New(fault.Internal, "the lease of the execution is lost")
	// ErrNotActive says that the workflow was archived or deleted meanwhile.
	ErrNotActive = fault.New(fault.Conflict, "the workflow is not active").WithSubCode(fault.InvalidWorkflowStatus)
	errUnknown   = fault.New(fault.NotFound, "there is no such execution")
	errStopping  = fault.New(fault.Unavailable, "the service is stopping")
)
