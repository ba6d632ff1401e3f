package workers

import (
	"context"
	"errors"

	"github.com/riverqueue/river"

	"tranche/internal/batch"
	"tranche/internal/fault"
	"tranche/jobs"
)

// postProcessingAttemptsMax is after how many attempts that failed for another
// reason than the database's being away a batch is given up.
const postProcessingAttemptsMax = 5

type batchPostProcessing struct {
	river.WorkerDefaults[jobs.BatchPostProcessing]
	batches *batch.Service
}

// Work writes the output package of a batch, from the start after a crash.
func (w *batchPostProcessing) Work(ctx context.Context, job *river.Job[jobs.BatchPostProcessing]) error {
	err := w.batches.PostProcess(ctx, job.Args.TenantID, job.Args.BatchID)
	isFinal := err != nil && ctx.Err() == nil && !errors.Is(err, fault.Unavailable) && len(job.Errors) >= postProcessingAttemptsMax-1
	if !isFinal {
		return err
	}
	if failed := w.batches.FailPostProcessing(ctx, job.Args.TenantID, job.Args.BatchID); failed != nil {
		return errors.Join(err, failed)
	}
	return river.JobCancel(err)
}
