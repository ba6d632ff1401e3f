package workers

import (
	"context"
	"errors"
	"time"

	"github.com/riverqueue/river"

	"tranche/internal/batch/runner"
	"tranche/internal/execution"
	"tranche/jobs"
)

// recheckInterval is how often items are checked while another worker holds them. They have
// to continue soon after it releases them or dies.
const recheckInterval = 2 * time.Second

type batchItemRun struct {
	river.WorkerDefaults[jobs.BatchItemRun]
	items *runner.Runner
}

// Work runs a chunk, or the pending items of a range. It repeats the job later if another
// worker holds the chunk or an item, or if the target of the items is unavailable.
func (w *batchItemRun) Work(ctx context.Context, job *river.Job[jobs.BatchItemRun]) error {
	held, err := w.items.RunItems(ctx, job.Args)
	if open, ok := errors.AsType[*runner.CircuitOpenError](err); ok {
		return river.JobSnooze(open.Wait)
	}
	if err != nil {
		return err
	}
	if held == execution.HeldElsewhere {
		return river.JobSnooze(recheckInterval)
	}
	return nil
}
