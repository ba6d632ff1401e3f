package workers

import (
	"context"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"tranche/internal/batch/runner"
	"tranche/internal/execution"
	"tranche/internal/liveness"
	"tranche/jobs"
)

type taskExecution struct {
	river.WorkerDefaults[jobs.TaskExecution]
	executions *execution.Service
	items      *runner.Runner
}

// Work runs an execution until it ends or waits. While another live process holds its lease,
// the job is repeated later, because that process may die.
func (w *taskExecution) Work(ctx context.Context, job *river.Job[jobs.TaskExecution]) error {
	return w.resume(ctx, job.Args.TenantID, job.Args.ExecutionID)
}

func (w *taskExecution) resume(ctx context.Context, tenantID, id uuid.UUID) error {
	f, held, err := w.executions.RunLeased(ctx, tenantID, id)
	switch {
	case err != nil:
		return err
	case f != nil && f.BatchID != nil:
		return w.items.End(ctx, f)
	case f != nil:
		if held, err = w.executions.End(ctx, f); err != nil {
			return err
		}
	}
	if held == execution.HeldElsewhere {
		return river.JobSnooze(liveness.RecheckAfter)
	}
	return nil
}
