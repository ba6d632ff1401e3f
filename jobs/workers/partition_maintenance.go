package workers

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"tranche/internal/audit"
	"tranche/internal/idempotency"
	"tranche/internal/postgres"
	"tranche/internal/storage"
	"tranche/jobs"
	"tranche/queries"
)

// PartitionMonthsAhead is how many months' partitions exist beforehand, so that
// a service whose maintenance stands still goes on for that long.
const PartitionMonthsAhead = 3

// signalsPart is how many signals a statement removes.
const signalsPart = 10_000

// signalKeep is how long a signal is kept after it came, at least.
const signalKeep = 24 * time.Hour

type partitionMaintenance struct {
	river.WorkerDefaults[jobs.PartitionMaintenance]
	pool            *pgxpool.Pool
	retentionMonths int
}

// Work makes the partitions that do not exist yet, drops those that are past
// their retention, and sweeps what is of no use any more: idempotency keys,
// uploads that broke off, files that never came, counts of refused requests, and signals
// of executions that have ended.
func (w *partitionMaintenance) Work(ctx context.Context, job *river.Job[jobs.PartitionMaintenance]) error {
	ctx = postgres.AsSystem(ctx)
	if err := queries.New().SysExecutionPartitionsCreate(ctx, w.pool, PartitionMonthsAhead); err != nil {
		return err
	}
	if w.retentionMonths > 0 {
		if _, err := queries.New().SysExecutionPartitionsDrop(ctx, w.pool, int32(w.retentionMonths)); err != nil {
			return err
		}
	}
	if err := idempotency.Sweep(ctx, w.pool); err != nil {
		return err
	}
	if err := storage.New(w.pool).Sweep(ctx); err != nil {
		return err
	}
	if err := audit.DeleteOldDenied(ctx, w.pool); err != nil {
		return err
	}
	return postgres.InPages(signalsPart, func(signalsMax int32) (int64, error) {
		return queries.New().SysExecutionSignalDeleteOld(ctx, w.pool, queries.SysExecutionSignalDeleteOldParams{
			Before: job.CreatedAt.Add(-signalKeep), SignalsMax: signalsMax,
		})
	})
}
