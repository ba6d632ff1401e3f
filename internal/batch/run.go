package batch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/egress"
	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/limit"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/jobs"
	"tranche/queries"
)

// RunItems runs what a job names: the items of a chunk, or those pending of a
// range that are recorded, without effects in memory and written together, with
// effects each under its lease. execution.HeldElsewhere asks for another try
// later: a process that lives, or died just now, holds an item.
// Nothing begins while the batch is paused or once it is cancelled, and while
// what its items call is down: *DownError then says how long to wait.
func (s *Service) RunItems(ctx context.Context, run jobs.BatchItemRun) (execution.Holding, error) {
	tenantID, batchID, first, end := run.TenantID, run.BatchID, run.FirstItem, run.EndItem
	if run.IsChunk {
		return s.runChunk(ctx, run)
	}
	if wait := s.circuits.admit(tenantID, batchID, s.Clock()); wait > 0 {
		return execution.Held, &DownError{Wait: wait}
	}
	item, plan, leave, err := s.loadInPlace(ctx, run)
	if err != nil {
		return execution.Held, err
	}
	defer leave()
	if item == nil {
		return execution.Over, nil
	}
	// The latest version of a workflow that it runs may have changed since the
	// item was fed or has begun, and with it whether there are effects.
	switch {
	case !item.batch.MayBegin && !item.row.IsRunning:
		return execution.Over, nil // resuming feeds the items that are pending again
	case end-first == 1 && plan.Effects && item.row.IsFresh:
		return s.runFresh(ctx, tenantID, batchID, item, plan)
	case end-first == 1 && (plan.Effects || item.row.HasBegun):
		return s.runEffects(ctx, tenantID, batchID, item.row.ID, plan)
	default:
		return execution.Held, s.runRange(ctx, tenantID, batchID, first, end, plan)
	}
}

// loadInPlace reads the first item of a range and its plan; nil if there is none. If
// it is the only one, it has the places that it takes until leave is called.
func (s *Service) loadInPlace(ctx context.Context, run jobs.BatchItemRun) (item *loading, plan *workflow.Plan, leave func(), err error) {
	if run.EndItem-run.FirstItem > 1 {
		item, plan, err = s.loadFirst(ctx, run)
		return item, plan, func() {}, err
	}
	came := s.calling.Ticket()
	load := func(places int) (isEnough bool) {
		if leave, err = s.calling.Acquire(ctx, limit.Request{TenantID: run.TenantID, BatchID: run.BatchID, Ticket: came, Slots: places}); err != nil {
			return true
		}
		defer func() { // also after a panic
			if !isEnough || err != nil {
				leave()
			}
		}()
		item, plan, err = s.loadFirst(ctx, run)
		return err != nil || item == nil || places > 1 || placesOf(plan) == 1
	}
	if !load(1) { // it is heavy, which is known only now
		load(max(placesOf(plan), 2))
	}
	return item, plan, leave, err
}

func (s *Service) loadFirst(ctx context.Context, run jobs.BatchItemRun) (*loading, *workflow.Plan, error) {
	item := &loading{index: run.FirstItem}
	if err := s.loads.add(ctx, run.TenantID, run.BatchID, item); err != nil || item.row == nil {
		return nil, nil, err
	}
	_, plan, err := s.Catalog.Plan(ctx, run.TenantID, item.batch.WorkflowID)
	return item, plan, err
}

// runEffects drives one item until it ends or has to wait.
func (s *Service) runEffects(ctx context.Context, tenantID, batchID, id uuid.UUID, plan *workflow.Plan) (execution.Holding, error) {
	return s.drive(ctx, tenantID, batchID, plan, nil, func(ctx context.Context) (*execution.Finished, execution.Holding, error) {
		return s.Executions.RunAdmitted(ctx, tenantID, id)
	})
}

// runFresh is runEffects for an item that has no state yet: it becomes this
// process' with the first one, and many at a time.
func (s *Service) runFresh(ctx context.Context, tenantID, batchID uuid.UUID, item *loading, plan *workflow.Plan) (execution.Holding, error) {
	row := item.row
	input, err := exactjson.Decode(row.FreshInput)
	if err != nil {
		return execution.Held, fmt.Errorf("read the input of execution %s: %w", row.ID, err)
	}
	return s.drive(ctx, tenantID, batchID, plan, nil, func(ctx context.Context) (*execution.Finished, execution.Holding, error) {
		return s.Executions.RunItem(ctx, execution.Item{
			TenantID: tenantID, ID: row.ID, BatchID: batchID, Plan: plan, Input: input, Custom: item.custom, BorrowerID: row.BorrowerID,
			IsTest: row.IsTest, Attempt: int(row.Attempt), Tags: row.Tags,
		}, func(ctx context.Context, c *execution.Checkpoint) (bool, error) {
			return s.storeNext(ctx, tenantID, batchID, c)
		})
	})
}

// storeNext makes a state of a recorded item durable; false if the item is not
// this process'.
func (s *Service) storeNext(ctx context.Context, tenantID, batchID uuid.UUID, c *execution.Checkpoint) (isHeld bool, err error) {
	written := &checkpoint{Checkpoint: c}
	err = s.checkpoints.add(ctx, tenantID, batchID, written)
	return written.isHeld, err
}

// drive runs an item and writes its end, unless it is put off. One of a chunk may
// have come to its end without being recorded.
func (s *Service) drive(ctx context.Context, tenantID, batchID uuid.UUID, plan *workflow.Plan, it *chunkItem, run func(context.Context) (*execution.Finished, execution.Holding, error)) (execution.Holding, error) {
	watch, startedAt := s.circuits.watch(tenantID, s.Clock), s.Clock()
	f, holding, err := run(egress.Observe(ctx, watch.report))
	if err != nil || f == nil {
		return holding, err
	}
	if host := watch.down(); host != "" && f.Outcome.TasksFailed > 0 && !s.circuits.isOver(batchID, s.Clock()) {
		holding, err = s.putOff(ctx, batchID, plan, it, f, host)
	} else if it != nil && !it.isRecorded {
		err = it.record(ctx, f)
	} else {
		err = s.ends.add(ctx, tenantID, batchID, &ended{Finished: f, plan: plan, startedAt: startedAt})
	}
	if _, isDown := errors.AsType[*DownError](err); err != nil && !isDown {
		s.Executions.Release(ctx, f)
	}
	return holding, err
}

// End writes an item that has ended elsewhere than in RunItems: after a wait.
func (s *Service) End(ctx context.Context, f *execution.Finished) (err error) {
	defer func() {
		if err != nil {
			s.Executions.Release(ctx, f)
		}
	}()
	batch, err := s.q.BatchGetForItems(ctx, s.Pool, queries.BatchGetForItemsParams{TenantID: f.TenantID, ID: *f.BatchID})
	if err != nil {
		return postgres.Translate(fmt.Errorf("get batch %s: %w", *f.BatchID, err))
	}
	_, plan, err := s.Catalog.Plan(ctx, f.TenantID, batch.WorkflowID)
	if err != nil {
		return err
	}
	return s.ends.add(ctx, f.TenantID, *f.BatchID, &ended{Finished: f, plan: plan})
}

// runRange runs recorded items without effects, and writes their results in one
// statement. Others get jobs of their own.
func (s *Service) runRange(ctx context.Context, tenantID, batchID uuid.UUID, first, end int32, plan *workflow.Plan) error {
	leave, err := s.turns.Acquire(ctx, limit.Request{TenantID: tenantID, BatchID: batchID})
	if err != nil {
		return err
	}
	defer leave()
	batch, err := s.q.BatchGetForItems(ctx, s.Pool, queries.BatchGetForItemsParams{TenantID: tenantID, ID: batchID})
	if err != nil {
		return postgres.Translate(fmt.Errorf("get batch %s: %w", batchID, err))
	}
	if !batch.MayBegin {
		return nil // it was paused or cancelled while the range waited
	}
	custom, err := customOf(batchID, batch.CustomInput)
	if err != nil {
		return err
	}
	rows, err := s.q.BatchItemsGetPending(ctx, s.Pool, queries.BatchItemsGetPendingParams{
		TenantID: tenantID, BatchID: batchID, FirstItem: first, EndItem: end,
	})
	if err != nil {
		return postgres.Translate(fmt.Errorf("get items of batch %s: %w", batchID, err))
	}
	items, size := make([]*ended, 0, len(rows)), 0
	var alone []int32
	for i := range rows {
		row := &rows[i]
		if plan.Effects || row.HasBegun {
			alone = append(alone, row.ItemIndex)
			continue
		}
		item, err := s.runPure(ctx, execution.Item{
			TenantID: tenantID, ID: row.ID, Plan: plan, Custom: custom, IsTest: row.IsTest,
			Attempt: int(row.Attempt), Tags: row.Tags,
		}, string(row.Input))
		if err != nil {
			return err
		}
		items = append(items, item)
		if size += item.size(); size > recordedBytesMax {
			if err := s.finish(ctx, tenantID, batchID, plan, items); err != nil {
				return err
			}
			items, size = items[:0], 0
		}
	}
	if err := s.finish(ctx, tenantID, batchID, plan, items); err != nil || len(alone) == 0 {
		return err
	}
	return postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		return s.enqueue(ctx, tx, batchID, runsOf(tenantID, batchID, alone, 1))
	})
}

func customOf(batchID uuid.UUID, text []byte) (any, error) {
	if text == nil {
		return nil, nil
	}
	custom, err := exactjson.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("read the custom input of batch %s: %w", batchID, err)
	}
	return custom, nil
}

// runPure runs one item on its input. A fault of the service ends the item as
// failed, so that it does not keep the others of its range from ending.
func (s *Service) runPure(ctx context.Context, item execution.Item, text string) (*ended, error) {
	e := &ended{startedAt: s.Clock()}
	input, err := exactjson.Decode([]byte(text))
	if err == nil {
		object, _ := input.(map[string]any)
		item.Input, item.BorrowerID = input, execution.BorrowerOf(object)
		e.borrowerID = queries.Value(execution.BorrowerOf(object))
		if e.Finished, err = s.Executions.RunPure(ctx, item); err == nil {
			return e, nil
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.Log.LogAttrs(ctx, slog.LevelError, "an item of a batch cannot be run", slog.String("executionId", item.ID.String()), slog.Any("error", err))
	outcome := &engine.Outcome{
		Status: engine.StatusFailed, StatusCode: 500, Output: map[string]any{}, ErrorMessage: "an unexpected error occurred",
	}
	result, err := execution.ResultText(outcome)
	if err != nil {
		return nil, err
	}
	e.Finished = &execution.Finished{
		TenantID: item.TenantID, ID: item.ID, Outcome: outcome, Tags: item.Tags, ResultText: result, At: e.startedAt,
	}
	return e, nil
}
