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

// Work prepares the items of a retry. After a crash it continues with the next ones.
func (w *batchItemRetry) Work(ctx context.Context, job *river.Job[jobs.BatchItemRetry]) error {
	return w.stages.work(ctx, job.JobRow, job.Args.TenantID, func() error {
		return w.batches.RetryItems(ctx, batch.Key{TenantID: job.Args.TenantID, ID: job.Args.BatchID})
	}, nil)
}
