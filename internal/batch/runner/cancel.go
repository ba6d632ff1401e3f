package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/batch"
	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/internal/writebatch"
	"tranche/queries"
)

const (
	// cancelItemsMax is how many pending items one transaction cancels.
	cancelItemsMax = 5000
	// cancelWaitingMax is how many waiting items are read at a time. Their states are read
	// too.
	cancelWaitingMax = 200
)

// CancelItems cancels the items of a cancelled batch that do not run. It returns whether
// nothing is left to cancel. Otherwise items are running, and it is to be called again.
func (r *Runner) CancelItems(ctx context.Context, key batch.Key) (done bool, err error) {
	outcome := engine.CancelledOutcome()
	result, err := execution.ResultText(outcome)
	if err != nil {
		return false, err
	}
	if err := r.cancelChunks(ctx, key, result); err != nil {
		return false, err
	}
	if err := r.cancelPending(ctx, key, outcome, result); err != nil {
		return false, err
	}
	row, err := r.q.BatchGet(ctx, r.Pool, queries.BatchGetParams{TenantID: key.TenantID, ID: key.ID})
	if err != nil {
		return false, postgres.Translate(fmt.Errorf("get batch %s: %w", key.ID, err))
	}
	if row.CancelRequestedAt == nil || batch.Status(row.Status) != batch.StatusProcessing {
		return true, nil
	}
	_, plan, err := r.Catalog.Plan(ctx, key.TenantID, row.WorkflowID)
	if err != nil {
		return false, err
	}
	for cancelled := cancelWaitingMax; cancelled == cancelWaitingMax; {
		if cancelled, err = r.cancelWaiting(ctx, key, plan); err != nil {
			return false, err
		}
	}
	p, err := r.Dispatcher.Advance(ctx, key, plan)
	return err == nil && p.IsProcessed(), err
}

// cancelPending cancels the recorded items that are pending.
func (r *Runner) cancelPending(ctx context.Context, key batch.Key, outcome *engine.Outcome, result []byte) error {
	for {
		items, err := r.q.BatchItemsCancel(ctx, r.Pool, queries.BatchItemsCancelParams{
			TenantID: key.TenantID, BatchID: key.ID, ItemsMax: cancelItemsMax, StatusCode: int32(outcome.StatusCode), Result: result,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return postgres.Translate(fmt.Errorf("cancel items of batch %s: %w", key.ID, err))
		}
		r.Executions.NoteEnded(outcome.Status, int(items))
	}
}

// cancelWaiting cancels some of the items that wait for a time, a signal or a retry. It
// returns how many.
func (r *Runner) cancelWaiting(ctx context.Context, key batch.Key, plan *workflow.Plan) (int, error) {
	ids, err := r.q.BatchItemsListPostponed(ctx, r.Pool, queries.BatchItemsListPostponedParams{
		TenantID: key.TenantID, BatchID: key.ID, ItemsMax: cancelWaitingMax,
	})
	if err != nil {
		return 0, postgres.Translate(fmt.Errorf("list the waiting items of batch %s: %w", key.ID, err))
	}
	var items []*finishedItem
	cancelled, bytes := 0, 0
	for _, id := range ids {
		f, err := r.Executions.Cancelled(ctx, key.TenantID, id, plan)
		if err != nil {
			return 0, err
		}
		if f == nil {
			continue // it runs or has ended
		}
		f.StartedAt = f.At // if it is not recorded
		cancelled++
		item := &finishedItem{Finished: f, plan: plan}
		items = append(items, item)
		if bytes += item.size(); bytes > writebatch.BytesMax {
			if err := r.finish(ctx, key, items); err != nil {
				return 0, err
			}
			items, bytes = nil, 0
		}
	}
	return cancelled, r.finish(ctx, key, items)
}

// cancelChunks cancels the items that wait in chunks. It skips chunks whose items run.
func (r *Runner) cancelChunks(ctx context.Context, key batch.Key, result []byte) error {
	chunks, err := r.q.BatchChunksList(ctx, r.Pool, queries.BatchChunksListParams{TenantID: key.TenantID, BatchID: key.ID, ChunksMax: batch.ItemsMax})
	if err != nil {
		return postgres.Translate(fmt.Errorf("list the chunks of batch %s: %w", key.ID, err))
	}
	for _, listed := range chunks {
		if err := r.cancelChunk(ctx, key, listed.FirstItem, result); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) cancelChunk(ctx context.Context, key batch.Key, first int32, result []byte) error {
	c, exists, err := r.getChunk(ctx, key, first)
	if err != nil || !exists || !c.row.IsCancelled || r.isLeased(c.row.Token, c.row.HolderID, c.row.HolderLives) {
		return err
	}
	if c.row.Token == nil {
		return r.recordCancelled(ctx, c, result)
	}
	// An earlier worker may have recorded items of the chunk. The lease removes those from it.
	l, isAcquired, err := r.acquireLease(ctx, key, first, c.row.Token)
	if err != nil || !isAcquired {
		return err
	}
	if c, exists, err = r.getChunk(ctx, key, first); err == nil && exists {
		err = r.recordCancelled(ctx, c, result)
	}
	return errors.Join(err, l.release(ctx))
}

// recordCancelled records the items of a chunk as cancelled.
func (r *Runner) recordCancelled(ctx context.Context, c *chunk, result []byte) error {
	items, err := r.cancelledItems(c, result)
	if err != nil {
		return err
	}
	isRecorded, err := r.recordChunk(ctx, c, items)
	if isRecorded {
		r.Executions.NoteEnded(engine.StatusCancelled, len(items))
	}
	return err
}

// cancelledItems returns the items of a chunk with the given result. Calls may have been made
// for them, which a retry repeats under the same keys, so they keep the ids that they had.
func (r *Runner) cancelledItems(c *chunk, result []byte) ([]*finishedItem, error) {
	items := make([]*finishedItem, len(c.row.Inputs))
	for i, text := range c.row.Inputs {
		input, err := exactjson.Decode([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("read input %d of chunk %d of batch %s: %w", i, c.first, c.key.ID, err)
		}
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		if c.row.IdsFrom != nil {
			id = itemID(*c.row.IdsFrom, c.row.ItemIndexes[i]-c.first)
		}
		object, _ := input.(map[string]any)
		items[i] = &finishedItem{plan: c.plan, borrowerID: queries.Value(execution.BorrowerOf(object)), Finished: &execution.Finished{
			TenantID: c.key.TenantID, ID: id, Outcome: engine.CancelledOutcome(), ResultText: result, StartedAt: queries.CreatedAt(id), At: r.Clock(),
		}}
	}
	return items, nil
}
