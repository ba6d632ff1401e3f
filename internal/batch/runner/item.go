package runner

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"tranche/internal/batch"
	"tranche/internal/egress"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/limit"
	"tranche/internal/workflow"
	"tranche/jobs"
	"tranche/queries"
)

// runOne runs the only item of a range. It takes as many slots as items of its workflow
// need, which is known only after the item is loaded.
func (r *Runner) runOne(ctx context.Context, key batch.Key, job jobs.BatchItemRun) (execution.Holding, error) {
	request := limit.Request{TenantID: key.TenantID, BatchID: key.ID, Slots: 1, Ticket: r.slots.Ticket()}
	needed, holding, err := r.runOneWith(ctx, key, job, request)
	if needed > 1 {
		request.Slots = needed
		_, holding, err = r.runOneWith(ctx, key, job, request)
	}
	return holding, err
}

// runOneWith runs the item while it holds the slots of the request. If one slot is too few,
// it does not run the item and returns how many are needed.
func (r *Runner) runOneWith(ctx context.Context, key batch.Key, job jobs.BatchItemRun, request limit.Request) (needed int, holding execution.Holding, err error) {
	release, err := r.slots.Acquire(ctx, request)
	if err != nil {
		return 0, execution.Held, err
	}
	defer release()
	item, err := r.writers.loads.Write(ctx, key, job.FirstItem)
	if err != nil {
		return 0, execution.Held, err
	}
	if !item.exists {
		return 0, execution.Over, nil
	}
	if needed := slotsOf(item.batch.plan); request.Slots == 1 && needed > 1 {
		return needed, execution.Held, nil
	}
	holding, err = r.runLoaded(ctx, key, job, &item)
	return 0, holding, err
}

// loadedItem is a recorded item and its batch.
type loadedItem struct {
	exists bool
	row    queries.BatchItemsGetRow
	batch  *batchData
}

// runLoaded runs a recorded item. Whether it has effects may have changed since it was
// dispatched or began, if the workflow runs the latest version of another one.
func (r *Runner) runLoaded(ctx context.Context, key batch.Key, job jobs.BatchItemRun, item *loadedItem) (execution.Holding, error) {
	plan := item.batch.plan
	switch {
	case !item.batch.MayBegin && !item.row.IsRunning:
		return execution.Over, nil // resuming the batch dispatches pending items again
	case plan.Effects && item.row.IsFresh:
		return r.runFresh(ctx, key, item)
	case plan.Effects || item.row.HasBegun:
		return r.runRecorded(ctx, key, plan, item.row.ID)
	default:
		return execution.Held, r.runRange(ctx, key, job)
	}
}

// runRecorded runs a recorded item under its lease until it ends or has to wait.
func (r *Runner) runRecorded(ctx context.Context, key batch.Key, plan *workflow.Plan, id uuid.UUID) (execution.Holding, error) {
	watch := r.circuits.watch(key.TenantID, r.Clock)
	f, holding, err := r.Executions.RunAdmitted(egress.Observe(ctx, watch.report), key.TenantID, id)
	if err != nil || f == nil {
		return holding, err
	}
	return r.endRecorded(ctx, key, plan, watch, f)
}

// runFresh runs a recorded item that has no state yet. The statement that writes its first
// state also takes its lease, so that many items share it.
func (r *Runner) runFresh(ctx context.Context, key batch.Key, item *loadedItem) (execution.Holding, error) {
	row := &item.row
	input, err := exactjson.Decode(row.FreshInput)
	if err != nil {
		return execution.Held, fmt.Errorf("read the input of execution %s: %w", row.ID, err)
	}
	watch := r.circuits.watch(key.TenantID, r.Clock)
	f, holding, err := r.Executions.RunItem(egress.Observe(ctx, watch.report), execution.Item{
		TenantID: key.TenantID, ID: row.ID, BatchID: key.ID, Plan: item.batch.plan, Input: input, Custom: item.batch.custom,
		BorrowerID: row.BorrowerID, IsTest: row.IsTest, Attempt: int(row.Attempt), Tags: row.Tags,
	}, func(ctx context.Context, c *execution.Checkpoint) (bool, error) {
		return r.writers.checkpoints.Write(ctx, key, c)
	})
	if err != nil || f == nil {
		return holding, err
	}
	return r.endRecorded(ctx, key, item.batch.plan, watch, f)
}

// endRecorded records the end of a recorded item, or postpones the item if its target is
// unavailable.
func (r *Runner) endRecorded(ctx context.Context, key batch.Key, plan *workflow.Plan, watch *watch, f *execution.Finished) (execution.Holding, error) {
	if host := r.unavailable(key, watch, f); host != "" {
		return r.postponeRecorded(ctx, key, plan, f, host)
	}
	err := r.recordEnd(ctx, key, plan, f)
	if err != nil {
		r.Executions.Release(ctx, f)
	}
	return execution.Held, err
}

// recordEnd records the end of a recorded item, in one statement with others.
func (r *Runner) recordEnd(ctx context.Context, key batch.Key, plan *workflow.Plan, f *execution.Finished) error {
	_, err := r.writers.ends.Write(ctx, key, &finishedItem{Finished: f, plan: plan})
	return err
}
