package workers

import (
	"context"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"tranche/internal/batch"
	"tranche/jobs"
)

type scheduleFiring struct {
	river.WorkerDefaults[jobs.ScheduleFiring]
	executions *taskExecution
	batches    *batch.Service
}

// Work starts the run of a firing, or continues it after a crash.
func (w *scheduleFiring) Work(ctx context.Context, job *river.Job[jobs.ScheduleFiring]) error {
	if job.Args.BatchID != uuid.Nil {
		return w.batches.Begin(ctx, job.Args.TenantID, job.Args.BatchID)
	}
	return w.executions.resume(ctx, job.Args.TenantID, job.Args.ExecutionID)
}
