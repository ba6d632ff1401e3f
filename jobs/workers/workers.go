// Package workers does the work of the jobs. Arguments of a job are ids. Each worker loads
// their rows, checks the state, and calls the domain, so running a job twice is safe. It must
// not know HTTP or package api.
package workers

import (
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"tranche/internal/batch"
	"tranche/internal/batch/ingest"
	"tranche/internal/batch/output"
	"tranche/internal/batch/runner"
	"tranche/internal/consent"
	"tranche/internal/execution"
)

// Parts are the services that the workers call.
type Parts struct {
	Pool       *pgxpool.Pool
	Executions *execution.Service
	Batches    *batch.Service
	Ingester   *ingest.Ingester
	Runner     *runner.Runner
	Output     *output.Writer
	Consents   *consent.Service
	// RetentionMonths is how many whole months executions are kept; 0 keeps them for ever.
	RetentionMonths int
	Clock           func() time.Time
	Log             *slog.Logger
}

// New registers the workers of all kinds. Every process with workers registers all of them.
func New(p Parts) *river.Workers {
	workers := river.NewWorkers()
	river.AddWorker(workers, &partitionMaintenance{pool: p.Pool, retentionMonths: p.RetentionMonths})
	executions := &taskExecution{executions: p.Executions, items: p.Runner}
	river.AddWorker(workers, executions)
	river.AddWorker(workers, &scheduleFiring{executions: executions, batches: p.Batches})
	ofBatches := &stages{db: p.Pool, clock: p.Clock, log: p.Log}
	river.AddWorker(workers, &batchPreProcessing{ingester: p.Ingester, stages: ofBatches})
	river.AddWorker(workers, &batchItemRun{items: p.Runner})
	river.AddWorker(workers, &batchItemRetry{batches: p.Batches, stages: ofBatches})
	river.AddWorker(workers, &batchCancellation{items: p.Runner})
	river.AddWorker(workers, &batchPostProcessing{output: p.Output, stages: ofBatches})
	river.AddWorker(workers, &otpDelivery{consents: p.Consents})
	river.AddWorker(workers, &otpExpiry{consents: p.Consents})
	return workers
}
