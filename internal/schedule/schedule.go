// Package schedule runs workflows at recurring times: it computes the times of cron
// expressions, stores the two slots of a workflow, and fires due schedules (contract A.2.11 and A.4.5, 7). It must not know HTTP.
//
// A schedule is a row with the time of its next run. About once a second every worker
// locks due rows and skips rows that another worker has locked (fire.go). In one
// transaction it records the firing, records the run with its schedule_firing job, and
// advances the row. A crash undoes all of this or nothing. The key of a firing contains
// its time, so each time starts at most one run.
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

// Slot is one of the two schedules of a workflow. The contract uses the same names.
type Slot string

// The slots.
const (
	Single Slot = "schedule"      // starts executions
	Batch  Slot = "scheduleBatch" // starts batches
)

// Setting is the configuration of a slot.
type Setting struct {
	Slot Slot
	Cron string
	// UTCDeltaHours is the offset from UTC of the times in Cron, from -12 to 14.
	UTCDeltaHours int
	// Input is the input of the executions of slot Single. Nil means an empty object.
	Input map[string]any
	// Batch describes the batches of slot Batch.
	Batch BatchContent
}

// BatchContent describes a scheduled batch. Without items, files and packages it repeats
// the sources of the workflow's newest batch (contract 7.1).
type BatchContent struct {
	Label       string // empty: the alias
	Items       []any
	CustomInput map[string]any // nil: none, or the one of the repeated batch
	Files       []string       // stored names
	Packages    []string       // ids
}

// Schedule is a configured slot.
type Schedule struct {
	Setting
	NextRunAt time.Time
	// Reason says why the schedule cannot start a run. It is empty if it can. If it is
	// set, Setting has no input and no batch.
	Reason string
}

// unreadable is the reason of a schedule whose input or batch cannot be decoded. Only
// another version of the program can have written it.
const unreadable = "the stored input or batch cannot be read; configure the schedule again"

// Status is the result of a firing.
type Status string

// The statuses.
const (
	Started Status = "started"
	Skipped Status = "skipped" // on purpose: contract 7.1 and 7.3
	Failed  Status = "failed"  // the run could not be started
)

// Firing is one time at which a slot was due.
type Firing struct {
	Slot        Slot
	ScheduledAt time.Time
	FiredAt     time.Time
	Status      Status
	Reason      string     // why no run was started
	ExecutionID *uuid.UUID // of a started run of slot Single
	BatchID     *uuid.UUID // of a started run of slot Batch
}

// Clock returns the time that decides which schedules are due.
type Clock func(ctx context.Context, db queries.DBTX) (time.Time, error)

// DatabaseClock returns the time of the database, which is the same for all processes.
func DatabaseClock(ctx context.Context, db queries.DBTX) (time.Time, error) {
	return queries.New().SysTimeGet(ctx, db)
}

// Config configures a Service.
type Config struct {
	Pool       *pgxpool.Pool
	Jobs       *jobs.Client
	Catalog    *catalog.Catalog
	Executions *execution.Service
	Batches    *batch.Service
	Clock      Clock
	Log        *slog.Logger
}

// Service stores schedules and fires them.
type Service struct {
	Config
	q       *queries.Queries
	stop    context.CancelFunc // nil until Start
	stopped chan struct{}
}

// New returns a service. It fires schedules after Start.
func New(c Config) *Service { return &Service{Config: c, q: queries.New()} }
