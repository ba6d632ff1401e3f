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

// PartitionMonthsAhead is for how many months in advance partitions exist. For so long, the
// service works without maintenance.
const PartitionMonthsAhead = 3

// signalsPage is how many signals one statement deletes.
const signalsPage = 10_000

// signalKeep is how long a signal is kept at least.
const signalKeep = 24 * time.Hour

type partitionMaintenance struct {
	river.WorkerDefaults[jobs.PartitionMaintenance]
	pool            *pgxpool.Pool
	retentionMonths int
}

// Work creates missing partitions, drops partitions that are older than the retention, and
// deletes rows that are no longer needed: expired idempotency keys, interrupted uploads,
// announced files without an upload, old counts of denied requests, and signals of executions
// that have ended.
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
	return postgres.InPages(signalsPage, func(signalsMax int32) (int64, error) {
		return queries.New().SysExecutionSignalDeleteOld(ctx, w.pool, queries.SysExecutionSignalDeleteOldParams{
			Before: job.CreatedAt.Add(-signalKeep), SignalsMax: signalsMax,
		})
	})
}
