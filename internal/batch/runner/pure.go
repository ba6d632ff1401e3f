package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/batch"
	"tranche/internal/catalog"
	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/liveness"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/jobs"
	"tranche/queries"
)

// recordBytesMax bounds the states and results that one transaction records. Until then they
// are in memory several times: as values, as texts and as a statement.
const recordBytesMax = 4 << 20

// recordingMax bounds how many chunks are recorded concurrently.
const recordingMax = 4

// chunk is a chunk of items that run in memory or are cancelled.
type chunk struct {
	key      batch.Key
	first    int32 // index of its first item
	workflow *catalog.Workflow
	plan     *workflow.Plan
	row      queries.BatchChunkGetRow
}

// getChunk returns false if the items of the chunk are recorded.
func (r *Runner) getChunk(ctx context.Context, key batch.Key, first int32) (*chunk, bool, error) {
	c := &chunk{key: key, first: first}
	var err error
	c.row, err = r.q.BatchChunkGet(ctx, r.Pool, queries.BatchChunkGetParams{
		TenantID: key.TenantID, BatchID: key.ID, FirstItem: first, DeadAfterSeconds: liveness.DeadAfter.Seconds(),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, postgres.Translate(fmt.Errorf("get chunk %d of batch %s: %w", first, key.ID, err))
	}
	c.workflow, c.plan, err = r.Catalog.Plan(ctx, key.TenantID, c.row.WorkflowID)
	return c, err == nil, err
}

// runPureChunk runs the items of a chunk without effects in memory, and records them in one
// transaction, which deletes the chunk. A second worker finds no chunk and stops. Nothing
// outside the service has seen a run that a crash interrupts.
//
// If another worker was faster, the job has to check again: that worker may have died before
// its commit arrived.
func (r *Runner) runPureChunk(ctx context.Context, key batch.Key, first int32, plan *workflow.Plan) (execution.Holding, error) {
	release, err := r.Processors.Acquire(ctx, key)
	if err != nil {
		return execution.Held, err
	}
	release = sync.OnceFunc(release) // it is called before the chunk is recorded
	defer release()
	c, exists, err := r.getChunk(ctx, key, first)
	if err != nil || !exists || !c.row.MayBegin {
		return execution.Held, err
	}
	if c.row.Token != nil {
		return execution.HeldElsewhere, nil
	}
	c.plan = plan // a newer version of a workflow that it runs may have effects by now
	items, err := r.runInputs(ctx, c)
	if err != nil {
		return execution.Held, err
	}
	// Recording waits for the database, so other chunks compute meanwhile. The limit bounds the
	// memory of results that wait.
	if err := r.recording.Acquire(ctx, 1); err != nil {
		return execution.Held, err
	}
	defer r.recording.Release(1)
	release()
	if len(items) < len(c.row.Inputs) {
		isSplit, err := r.splitChunk(ctx, c, len(items))
		if err != nil || !isSplit {
			return execution.HeldElsewhere, err
		}
	}
	isRecorded, err := r.recordChunk(ctx, c, items)
	if err != nil || !isRecorded {
		return execution.HeldElsewhere, err
	}
	return execution.Held, nil
}

// runInputs runs the items of a chunk, until their states and results exceed recordBytesMax.
func (r *Runner) runInputs(ctx context.Context, c *chunk) ([]*finishedItem, error) {
	custom, err := decodeCustom(c.key.ID, c.row.CustomInput)
	if err != nil {
		return nil, err
	}
	items, bytes := make([]*finishedItem, 0, len(c.row.Inputs)), 0
	for _, input := range c.row.Inputs {
		if bytes > recordBytesMax {
			break
		}
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		item, err := r.runPure(ctx, execution.Item{
			TenantID: c.key.TenantID, ID: id, Plan: c.plan, Custom: custom, IsTest: c.row.IsTest, Attempt: 1,
		}, input)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		bytes += item.size()
	}
	return items, nil
}

// splitChunk leaves the first items in a chunk, and moves the others to a new chunk with a
// job of its own. It returns false if the chunk was recorded, split or leased meanwhile.
func (r *Runner) splitChunk(ctx context.Context, c *chunk, items int) (bool, error) {
	moved := c.row.ItemIndexes[items:]
	isSplit := false
	err := postgres.InTx(ctx, r.Pool, func(tx pgx.Tx) error {
		chunks, err := r.q.BatchChunkSplit(ctx, tx, queries.BatchChunkSplitParams{
			TenantID: c.key.TenantID, BatchID: c.key.ID, FirstItem: c.first, Items: int32(len(c.row.ItemIndexes)), Moved: int32(len(moved)), MovedFrom: moved[0],
		})
		if err != nil {
			return fmt.Errorf("split chunk %d of batch %s: %w", c.first, c.key.ID, err)
		}
		if chunks == 0 {
			return nil
		}
		isSplit = true
		return r.Dispatcher.EnqueueTx(ctx, tx, []jobs.BatchItemRun{{
			TenantID: c.key.TenantID, BatchID: c.key.ID, FirstItem: moved[0], EndItem: moved[len(moved)-1] + 1, IsChunk: true,
		}})
	})
	return isSplit, err
}

// runRange runs recorded items without effects in memory. Items that turn out to have effects
// or have begun get jobs of their own.
func (r *Runner) runRange(ctx context.Context, key batch.Key, job jobs.BatchItemRun) error {
	release, err := r.Processors.Acquire(ctx, key)
	if err != nil {
		return err
	}
	defer release()
	b, err := r.getBatch(ctx, key)
	if err != nil || !b.MayBegin {
		return err
	}
	rows, err := r.q.BatchItemsGetPending(ctx, r.Pool, queries.BatchItemsGetPendingParams{
		TenantID: key.TenantID, BatchID: key.ID, FirstItem: job.FirstItem, EndItem: job.EndItem,
	})
	if err != nil {
		return postgres.Translate(fmt.Errorf("get items of batch %s: %w", key.ID, err))
	}
	items, bytes := make([]*finishedItem, 0, len(rows)), 0
	var others []int32
	for i := range rows {
		row := &rows[i]
		if b.plan.Effects || row.HasBegun {
			others = append(others, row.ItemIndex)
			continue
		}
		item, err := r.runPure(ctx, execution.Item{
			TenantID: key.TenantID, ID: row.ID, Plan: b.plan, Custom: b.custom, IsTest: row.IsTest,
			Attempt: int(row.Attempt), Tags: row.Tags,
		}, string(row.Input))
		if err != nil {
			return err
		}
		items = append(items, item)
		if bytes += item.size(); bytes > recordBytesMax {
			if err := r.finish(ctx, key, items); err != nil {
				return err
			}
			items, bytes = items[:0], 0
		}
	}
	if err := r.finish(ctx, key, items); err != nil || len(others) == 0 {
		return err
	}
	return postgres.InTx(ctx, r.Pool, func(tx pgx.Tx) error {
		return r.Dispatcher.EnqueueTx(ctx, tx, batch.Runs(key, others, 1))
	})
}

// runPure runs one item on its input. If the service cannot run it, the item fails, so that
// the other items of its chunk can still end. The error is only ctx's.
func (r *Runner) runPure(ctx context.Context, item execution.Item, input string) (*finishedItem, error) {
	startedAt := r.Clock()
	it, err := r.tryPure(ctx, item, input)
	if err == nil {
		return it, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	r.Log.LogAttrs(ctx, slog.LevelError, "an item of a batch cannot run", slog.String("executionId", item.ID.String()), slog.Any("error", err))
	outcome := &engine.Outcome{
		Status: engine.StatusFailed, StatusCode: 500, Output: map[string]any{}, ErrorMessage: "an unexpected error occurred",
	}
	it.Finished = &execution.Finished{
		TenantID: item.TenantID, ID: item.ID, Outcome: outcome, Tags: item.Tags, StartedAt: startedAt, At: startedAt,
	}
	it.ResultText, err = execution.ResultText(outcome)
	return it, err
}

// tryPure runs one item on its input. The item that it returns with an error has no end.
func (r *Runner) tryPure(ctx context.Context, item execution.Item, text string) (*finishedItem, error) {
	it := &finishedItem{plan: item.Plan}
	input, err := exactjson.Decode([]byte(text))
	if err != nil {
		return it, err
	}
	object, _ := input.(map[string]any)
	item.Input, item.BorrowerID = input, execution.BorrowerOf(object)
	it.borrowerID = queries.Value(item.BorrowerID)
	it.Finished, err = r.Executions.RunPure(ctx, item)
	return it, err
}
