package workers

import (
	"context"

	"github.com/riverqueue/river"

	"tranche/internal/batch"
	"tranche/jobs"
)

type batchPreProcessing struct {
	river.WorkerDefaults[jobs.BatchPreProcessing]
	batches *batch.Service
	stages  *stages
}

// Work records the items of a batch, going on where a crash left off.
func (w *batchPreProcessing) Work(ctx context.Context, job *river.Job[jobs.BatchPreProcessing]) error {
	tenantID, batchID, attempt := job.Args.TenantID, job.Args.BatchID, job.Args.Attempt
	return w.stages.work(ctx, job.JobRow, tenantID,
		func() error { return w.batches.PreProcess(ctx, tenantID, batchID, attempt) },
		func() (bool, error) { return w.batches.FailPreProcessing(ctx, tenantID, batchID, attempt) })
}
