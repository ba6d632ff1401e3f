package workers

import (
	"context"

	"github.com/riverqueue/river"

	"tranche/internal/batch"
	"tranche/internal/batch/output"
	"tranche/jobs"
)

type batchPostProcessing struct {
	river.WorkerDefaults[jobs.BatchPostProcessing]
	output *output.Writer
	stages *stages
}

// Work writes the output package of a batch. After a crash it writes a new one.
func (w *batchPostProcessing) Work(ctx context.Context, job *river.Job[jobs.BatchPostProcessing]) error {
	key := batch.Key{TenantID: job.Args.TenantID, ID: job.Args.BatchID}
	return w.stages.work(ctx, job.JobRow, key.TenantID,
		func() error { return w.output.PostProcess(ctx, key) },
		func() (bool, error) { return w.output.FailPostProcessing(ctx, key) })
}
