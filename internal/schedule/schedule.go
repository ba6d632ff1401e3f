// Package schedule runs workflows at recurring times: the arithmetic of cron
// expressions, the two slots of a workflow, and the firing of those that are
// due (sections 2.11 and 4.5 of the interface specification, decisions 7). It
// must not know HTTP.
//
// A schedule is a row with the time of its next run. About once a second every
// process that works takes the due rows that no other holds (fire.go) and, in
// one transaction, records the firing under its time, records the run with its
// schedule_firing job, and moves the row on. A crash undoes all of it or
// nothing, and the key of the firing lets each time start one run.
package schedule

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/batch"
	"tranche/internal/catalog"
	"tranche/internal/execution"
	"tranche/jobs"
	"tranche/queries"
)

// Slot is one of the two schedules of a workflow, named as in the interface
// specification.
type Slot string

// The slots.
const (
	Single Slot = "schedule"      // starts executions
	Batch  Slot = "scheduleBatch" // starts batches
)

// Setting is what a slot is configured with.
type Setting struct {
	Slot Slot
	Cron string
	// UTCDeltaHours says how many hours the clocks that Cron means are ahead of
	// UTC, from -12 to 14.
	UTCDeltaHours int
	// Input is what slot Single executes on; nil stands for an empty object.
	Input map[string]any
	// Batch is what slot Batch starts.
	Batch BatchContent
}

// BatchContent is what a scheduled batch is made of. Without any source of items
// it repeats the sources of the workflow's newest batch (decisions 7.1).
type BatchContent struct {
	Label       string // empty: the alias
	Items       []any
	CustomInput map[string]any // nil: none, or that of the repeated batch
	Files       []string       // stored names
	Packages    []string       // ids
}

// Schedule is a configured slot.
type Schedule struct {
	Setting
	NextRunAt time.Time
	// Reason says why it starts nothing; empty where it does. Setting is without what
	// it starts then.
	Reason string
}

// unreadable is the reason of a schedule whose content only another version of the
// program can have written.
const unreadable = "what it starts cannot be read"

// Status is what came of a firing.
type Status string

// The statuses.
const (
	Started Status = "started"
	Skipped Status = "skipped" // as it should be: decisions 7.1 and 7.3
	Failed  Status = "failed"  // the run could not be started
)

// Firing is one time at which a slot was due.
type Firing struct {
	Slot        Slot
	ScheduledAt time.Time
	FiredAt     time.Time
	Status      Status
	Reason      string     // why no run was started
	ExecutionID *uuid.UUID // of slot Single, where started
	BatchID     *uuid.UUID // of slot Batch, where started
}

// Clock tells the time by which schedules are due.
type Clock func(ctx context.Context, db queries.DBTX) (time.Time, error)

// DatabaseClock is the database's clock: it is the same for all processes,
// whatever theirs say.
func DatabaseClock(ctx context.Context, db queries.DBTX) (time.Time, error) {
	return queries.New().SysTimeGet(ctx, db)
}

// Config is what the service works with.
type Config struct {
	Pool       *pgxpool.Pool
	Jobs       *jobs.Client
	Catalog    *catalog.Catalog
	Executions *execution.Service
	Batches    *batch.Service
	Clock      Clock
	Log        *slog.Logger
}

// Service keeps schedules and fires them.
type Service struct {
	Config
	q       *queries.Queries
	stop    context.CancelFunc // nil until Start
	stopped chan struct{}
}

// New returns a service that fires nothing before Start.
func New(c Config) *Service { return &Service{Config: c, q: queries.New()} }
