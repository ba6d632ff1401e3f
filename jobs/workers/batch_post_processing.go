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
	return w.stages.work(ctx, job.Args.TenantID, func() error { return w.work(ctx, job) })
}

func (w *batchPostProcessing) work(ctx context.Context, job *river.Job[jobs.BatchPostProcessing]) error {
	err := w.batches.PostProcess(ctx, job.Args.TenantID, job.Args.BatchID)
	if !isHopeless(ctx, err, job.JobRow) {
		return err
	}
	return giveUp(err, func() (bool, error) {
		return w.batches.FailPostProcessing(ctx, job.Args.TenantID, job.Args.BatchID)
	})
}
