package workers

import (
	"context"
	"errors"
	"time"

	"github.com/riverqueue/river"

	"tranche/internal/batch"
	"tranche/internal/execution"
	"tranche/jobs"
)

// heldInterval is how often items are looked at again while another runs them:
// they are to go on soon after it ends, be it that the batch was paused and
// resumed meanwhile or that a process died.
const heldInterval = 2 * time.Second

type batchItemRun struct {
	river.WorkerDefaults[jobs.BatchItemRun]
	batches *batch.Service
}

// Work runs a chunk, or the pending ones of a range of items. While another runs
// the chunk or an item, or while what they call is down, the job comes back later.
func (w *batchItemRun) Work(ctx context.Context, job *river.Job[jobs.BatchItemRun]) error {
	held, err := w.batches.RunItems(ctx, job.Args)
	if down, ok := errors.AsType[*batch.DownError](err); ok {
		return river.JobSnooze(down.Wait)
	}
	if err != nil {
		return err
	}
	if held == execution.HeldElsewhere {
		return river.JobSnooze(heldInterval)
	}
	return nil
}
