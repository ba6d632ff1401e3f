package workers

import (
	"context"

	"github.com/riverqueue/river"

	"tranche/internal/batch"
	"tranche/jobs"
)

type batchPostProcessing struct {
	river.WorkerDefaults[jobs.BatchPostProcessing]
	batches *batch.Service
	stages  *stages
}

// Work writes the output package of a batch, from the start after a crash.
func (w *batchPostProcessing) Work(ctx context.Context, job *river.Job[jobs.BatchPostProcessing]) error {
	tenantID, batchID := job.Args.TenantID, job.Args.BatchID
	return w.stages.work(ctx, job.JobRow, tenantID,
		func() error { return w.batches.PostProcess(ctx, tenantID, batchID) },
		func() (bool, error) { return w.batches.FailPostProcessing(ctx, tenantID, batchID) })
}
