package workers

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"tranche/jobs"
	"tranche/queries"
)

// partitionMonthsAhead is how many months' partitions exist beforehand, so that
// a service whose maintenance stands still goes on for that long.
const partitionMonthsAhead = 3

type partitionMaintenance struct {
	river.WorkerDefaults[jobs.PartitionMaintenance]
	pool *pgxpool.Pool
}

// Work makes the partitions that do not exist yet.
func (w *partitionMaintenance) Work(ctx context.Context, _ *river.Job[jobs.PartitionMaintenance]) error {
	return queries.New().SysExecutionPartitionsMake(ctx, w.pool, partitionMonthsAhead)
}
