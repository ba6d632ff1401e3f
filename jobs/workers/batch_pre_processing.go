package workers

import (
	"context"

	"github.com/riverqueue/river"

	"tranche/internal/batch"
	"tranche/internal/batch/ingest"
	"tranche/jobs"
)

type batchPreProcessing struct {
	river.WorkerDefaults[jobs.BatchPreProcessing]
	ingester *ingest.Ingester
	stages   *stages
}

// Work records the items of a batch. After a crash it continues with the next ones.
func (w *batchPreProcessing) Work(ctx context.Context, job *river.Job[jobs.BatchPreProcessing]) error {
	key, attempt := batch.Key{TenantID: job.Args.TenantID, ID: job.Args.BatchID}, job.Args.Attempt
	return w.stages.work(ctx, job.JobRow, key.TenantID,
		func() error { return w.ingester.PreProcess(ctx, key, attempt) },
		func() (bool, error) { return w.ingester.FailPreProcessing(ctx, key, attempt) })
}
