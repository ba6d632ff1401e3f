package workers

import (
	"context"
	"time"

	"github.com/riverqueue/river"

	"tranche/internal/batch"
	"tranche/internal/batch/runner"
	"tranche/jobs"
)

// cancellationInterval is how often a cancelled batch is checked while its items run.
const cancellationInterval = time.Second

type batchCancellation struct {
	river.WorkerDefaults[jobs.BatchCancellation]
	items *runner.Runner
}

// Work cancels the items of a batch that do not run, and repeats the job while others run.
func (w *batchCancellation) Work(ctx context.Context, job *river.Job[jobs.BatchCancellation]) error {
	done, err := w.items.CancelItems(ctx, batch.Key{TenantID: job.Args.TenantID, ID: job.Args.BatchID})
	if err != nil || done {
		return err
	}
	return river.JobSnooze(cancellationInterval)
}
