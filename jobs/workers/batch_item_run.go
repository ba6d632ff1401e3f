package workers

import (
	"context"
	"errors"

	"github.com/riverqueue/river"

	"tranche/internal/batch"
	"tranche/internal/execution"
	"tranche/internal/process"
	"tranche/jobs"
)

type batchItemRun struct {
	river.WorkerDefaults[jobs.BatchItemRun]
	batches *batch.Service
}

// Work runs a chunk, or the pending ones of a range of items. While another process holds
// an item that is run alone, or while what it calls is down, the job comes back
// later.
func (w *batchItemRun) Work(ctx context.Context, job *river.Job[jobs.BatchItemRun]) error {
	held, err := w.batches.RunItems(ctx, job.Args)
	if down, ok := errors.AsType[*batch.DownError](err); ok {
		return river.JobSnooze(down.Wait)
	}
	if err != nil {
		return err
	}
	if held == execution.HeldElsewhere {
		return river.JobSnooze(process.LookAgainAfter)
	}
	return nil
}
