// Package runner runs the items of batches and records their ends. It must not know HTTP,
// or how items are read and results are written.
//
// RunItems (runner.go) decides how the items of a job run:
//
//   - Items without effects run in memory (pure.go). A chunk of them is recorded as a whole.
//   - Items with effects run concurrently (chunk.go). The worker holds a lease of their chunk
//     (lease.go), and each item is recorded by itself (chunk_item.go).
//   - Items that are recorded already have a job each (item.go).
//
// Concurrent items share statements (record.go). While a target is unavailable, the circuit
// breaker (circuit.go) postpones the items that call it (postpone.go).
package runner

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"tranche/internal/batch"
	"tranche/internal/catalog"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/limit"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/jobs"
	"tranche/queries"
)

const (
	// slotsMax is how many items with effects run concurrently in a process, until they are
	// recorded. Most of the time they wait for a response, and a target that hangs makes
	// them wait for long. A single tenant gets at most 800 slots, four fifths, so that other
	// tenants find some.
	slotsMax         = 1000
	slotsHeldPerFree = 4
	// An item takes one more slot for each bytesPerSlot of results that earlier items of its
	// workflow had, because decoded responses take up to sixteen times the memory of their
	// JSON. The heaviest items take itemSlotsMax, which is as many as a single tenant leaves
	// to others.
	bytesPerSlot = 32 << 10
	itemSlotsMax = slotsMax / (slotsHeldPerFree + 1)
)

// Config configures a Runner.
type Config struct {
	Pool       *pgxpool.Pool
	Catalog    *catalog.Catalog
	Executions *execution.Service
	Dispatcher *batch.Dispatcher
	// Processors bounds how much of the work that needs a processor runs concurrently.
	Processors *batch.Processors
	Clock      func() time.Time
	Log        *slog.Logger
}

// Runner runs items of batches.
type Runner struct {
	Config
	q       *queries.Queries
	writers writers
	slots   *limit.Fair // of items with effects
	// recording bounds the chunks that are recorded concurrently.
	recording *semaphore.Weighted
	columns   columnCache
	circuits  circuits
	leases    leases
}

// New returns a Runner.
func New(c Config) *Runner {
	r := &Runner{Config: c, q: queries.New(), slots: limit.NewFair(slotsMax, slotsHeldPerFree), recording: semaphore.NewWeighted(recordingMax)}
	r.writers = r.newWriters()
	return r
}

// RunItems runs the items of a job: a chunk, or the pending ones of a range of recorded
// items. execution.HeldElsewhere asks for another try later, because a process that lives,
// or died just now, holds an item. No item begins while the batch is paused, after it is
// cancelled, or while the target of its items is unavailable: then the error is a
// *CircuitOpenError.
func (r *Runner) RunItems(ctx context.Context, job jobs.BatchItemRun) (execution.Holding, error) {
	key := batch.Key{TenantID: job.TenantID, ID: job.BatchID}
	if job.IsChunk {
		return r.runChunk(ctx, key, job)
	}
	if wait := r.circuits.admit(key, r.Clock()); wait > 0 {
		return execution.Held, &CircuitOpenError{Wait: wait}
	}
	if job.EndItem-job.FirstItem == 1 {
		return r.runOne(ctx, key, job)
	}
	return execution.Held, r.runRange(ctx, key, job)
}

// End records the end of an item that a job of its own continued after a wait.
func (r *Runner) End(ctx context.Context, f *execution.Finished) error {
	key := batch.Key{TenantID: f.TenantID, ID: *f.BatchID}
	b, err := r.getBatch(ctx, key)
	if err == nil {
		err = r.recordEnd(ctx, key, b.plan, f)
	}
	if err != nil {
		r.Executions.Release(ctx, f)
	}
	return err
}

// batchData is what the items of a batch have in common.
type batchData struct {
	queries.BatchGetForItemsRow
	plan   *workflow.Plan
	custom any // the custom input
}

func (r *Runner) getBatch(ctx context.Context, key batch.Key) (*batchData, error) {
	row, err := r.q.BatchGetForItems(ctx, r.Pool, queries.BatchGetForItemsParams{TenantID: key.TenantID, ID: key.ID})
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("get batch %s: %w", key.ID, err))
	}
	b := &batchData{BatchGetForItemsRow: row}
	if b.custom, err = decodeCustom(key.ID, row.CustomInput); err != nil {
		return nil, err
	}
	_, b.plan, err = r.Catalog.Plan(ctx, key.TenantID, row.WorkflowID)
	return b, err
}

func decodeCustom(batchID uuid.UUID, text []byte) (any, error) {
	if text == nil {
		return nil, nil
	}
	custom, err := exactjson.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("read the custom input of batch %s: %w", batchID, err)
	}
	return custom, nil
}

// slotsOf returns how many slots an item of a plan takes.
func slotsOf(plan *workflow.Plan) int {
	if !plan.Effects {
		return 1
	}
	return int(min(1+plan.Weight.Bytes()/bytesPerSlot, itemSlotsMax))
}
