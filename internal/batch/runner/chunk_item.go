package runner

import (
	"context"

	"github.com/google/uuid"

	"tranche/internal/batch"
	"tranche/internal/egress"
	"tranche/internal/execution"
	"tranche/internal/workflow"
)

// chunkRow is an item as its leased chunk has it.
type chunkRow struct {
	id           uuid.UUID // of its execution
	first        int32     // index of the chunk's first item
	token        uuid.UUID // of the lease
	workflowType string
	index        int32
	rowNumber    int32  // 0 if the source has none
	fileName     string // empty if the source has none
	input        string
	borrowerID   string
}

// chunkItem is an item of a leased chunk while it runs. It gets a row when it ends, or before
// if more than its first calls must be durable.
type chunkItem struct {
	r          *Runner
	key        batch.Key
	plan       *workflow.Plan
	row        *chunkRow
	isRecorded bool
}

// run runs the item until it ends or has to wait. Before its first state is recorded, no
// process but this one knows that it runs.
func (it *chunkItem) run(ctx context.Context, item execution.Item) (execution.Holding, error) {
	watch := it.r.circuits.watch(it.key.TenantID, it.r.Clock)
	f, holding, err := it.r.Executions.RunItem(egress.Observe(ctx, watch.report), item, it.checkpoint)
	if err != nil || f == nil {
		return holding, err
	}
	if it.isRecorded {
		return it.r.endRecorded(ctx, it.key, it.plan, watch, f)
	}
	if host := it.r.unavailable(it.key, watch, f); host != "" {
		return it.postpone(ctx, f, host)
	}
	return execution.Held, it.recordOnlyEnd(ctx, f)
}

// checkpoint makes a state of the item durable. It returns false if another worker has the
// item now.
func (it *chunkItem) checkpoint(ctx context.Context, c *execution.Checkpoint) (bool, error) {
	if !c.Begins {
		return it.r.writers.checkpoints.Write(ctx, it.key, c)
	}
	isRecorded, err := it.r.writers.firstStates.Write(ctx, it.key, &firstState{row: it.row, checkpoint: c})
	if err == nil {
		it.isRecorded = isRecorded
	}
	return isRecorded, err
}

// recordOnlyEnd records the item with its end.
func (it *chunkItem) recordOnlyEnd(ctx context.Context, f *execution.Finished) error {
	end := &onlyEnd{row: it.row, finishedItem: &finishedItem{Finished: f, plan: it.plan, borrowerID: it.row.borrowerID}}
	_, err := it.r.writers.onlyEnds.Write(ctx, it.key, end)
	it.isRecorded = err == nil
	return err
}

// postpone postpones an item without a row. If the item has completed nothing, it stays in
// the chunk. Else it is recorded, so that completed calls are not repeated.
func (it *chunkItem) postpone(ctx context.Context, f *execution.Finished, host string) (execution.Holding, error) {
	wait, err := it.r.openCircuit(ctx, it.key, host)
	if err != nil {
		return execution.Held, err
	}
	if f.Outcome.TasksCompleted == 0 {
		return execution.Held, &CircuitOpenError{Wait: wait}
	}
	state, err := it.r.undoneState(ctx, it.plan, f)
	if err != nil {
		return execution.Held, err
	}
	f.LeaseToken = uuid.New()
	_, err = it.checkpoint(ctx, &execution.Checkpoint{
		ID: f.ID, LeaseToken: f.LeaseToken, Begins: true, StartedAt: f.StartedAt, DeadlineAt: f.DeadlineAt,
		State: state, TasksCompleted: int32(f.Outcome.TasksCompleted),
	})
	if err != nil {
		it.r.Executions.Release(ctx, f) // the commit may have succeeded nevertheless
		return execution.Held, err
	}
	return it.r.postpone(ctx, it.key, f, state, wait)
}
