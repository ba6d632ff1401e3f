package workers

import (
	"context"

	"github.com/riverqueue/river"

	"tranche/internal/batch"
	"tranche/jobs"
)

type batchItemRetry struct {
	river.WorkerDefaults[jobs.BatchItemRetry]
	batches *batch.Service
	stages  *stages
}

// Work makes the items of a retry ready, going on where a crash left off.
func (w *batchItemRetry) Work(ctx context.Context, job *river.Job[jobs.BatchItemRetry]) error {
	return w.stages.work(ctx, job.JobRow, job.Args.TenantID, func() error {
		return w.batches.RetryItems(ctx, job.Args.TenantID, job.Args.BatchID)
	}, nil)
}
