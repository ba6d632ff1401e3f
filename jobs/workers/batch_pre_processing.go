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
	return w.stages.work(ctx, job.Args.TenantID, func() error { return w.work(ctx, job) })
}

func (w *batchPreProcessing) work(ctx context.Context, job *river.Job[jobs.BatchPreProcessing]) error {
	err := w.batches.PreProcess(ctx, job.Args.TenantID, job.Args.BatchID)
	if !isHopeless(ctx, err, job.JobRow) {
		return err
	}
	return giveUp(err, func() (bool, error) {
		return w.batches.FailPreProcessing(ctx, job.Args.TenantID, job.Args.BatchID)
	})
}
