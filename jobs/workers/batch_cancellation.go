package workers

import (
	"context"
	"time"

	"github.com/riverqueue/river"

	"tranche/internal/batch"
	"tranche/jobs"
)

// cancellationInterval is how often a batch that is cancelled is looked at
// while items of it still run.
const cancellationInterval = time.Second

type batchCancellation struct {
	river.WorkerDefaults[jobs.BatchCancellation]
	batches *batch.Service
}

// Work ends the items of a batch that do not run, and comes back while others do.
func (w *batchCancellation) Work(ctx context.Context, job *river.Job[jobs.BatchCancellation]) error {
	done, err := w.batches.CancelItems(ctx, job.Args.TenantID, job.Args.BatchID)
	if err != nil || done {
		return err
	}
	return river.JobSnooze(cancellationInterval)
}
