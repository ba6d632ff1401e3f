package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/egress"
	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/queries"
)

// RunItems runs the pending ones of the items from index first up to, not
// including, end: in memory and written together where the workflow has no
// effects, else one by one under their leases. execution.HeldElsewhere asks for
// another try later: a process that lives, or died just now, holds the item.
// Nothing begins while the batch is paused or once it is cancelled, and while
// what its items call is down: *DownError then says how long to wait.
func (s *Service) RunItems(ctx context.Context, tenantID, batchID uuid.UUID, first, end int32) (execution.Holding, error) {
	if wait := s.circuits.admit(tenantID, batchID, s.Clock()); wait > 0 {
		return execution.Held, &DownError{Wait: wait}
	}
	item, err := s.q.BatchItemGet(ctx, s.Pool, queries.BatchItemGetParams{TenantID: tenantID, BatchID: batchID, ItemIndex: first})
	if errors.Is(err, pgx.ErrNoRows) {
		return execution.Over, nil
	}
	if err != nil {
		return execution.Held, postgres.Translate(fmt.Errorf("get item %d of batch %s: %w", first, batchID, err))
	}
	_, plan, err := s.Catalog.Plan(ctx, tenantID, item.WorkflowID)
	if err != nil {
		return execution.Held, err
	}
	// The latest version of a workflow that it runs may have changed since the
	// item was fed or has begun, and with it whether there are effects.
	switch {
	case !item.MayBegin && !item.IsRunning:
		return execution.Over, nil // resuming feeds the items that are pending again
	case end-first == 1 && (plan.Effects || item.HasBegun):
		return s.runEffects(ctx, tenantID, batchID, item.ID, plan)
	default:
		return execution.Held, s.runRange(ctx, tenantID, batchID, first, end, plan)
	}
}

// runEffects drives one item until it ends or has to wait.
func (s *Service) runEffects(ctx context.Context, tenantID, batchID, id uuid.UUID, plan *workflow.Plan) (execution.Holding, error) {
	watch := s.circuits.watch(tenantID, s.Clock)
	f, holding, err := s.Executions.RunLeased(egress.Observe(ctx, watch.report), tenantID, id)
	if err != nil || f == nil {
		return holding, err
	}
	if host := watch.down(); host != "" && f.Outcome.TasksFailed > 0 {
		return s.putOff(ctx, batchID, plan, f, host)
	}
	return holding, s.gather.add(ctx, tenantID, batchID, plan, &ended{Finished: f})
}

// End writes an item that has ended elsewhere than in RunItems: after a wait.
func (s *Service) End(ctx context.Context, f *execution.Finished) error {
	batch, err := s.q.BatchGetForItems(ctx, s.Pool, queries.BatchGetForItemsParams{TenantID: f.TenantID, ID: *f.BatchID})
	if err != nil {
		return postgres.Translate(fmt.Errorf("get batch %s: %w", *f.BatchID, err))
	}
	_, plan, err := s.Catalog.Plan(ctx, f.TenantID, batch.WorkflowID)
	if err != nil {
		return err
	}
	return s.gather.add(ctx, f.TenantID, *f.BatchID, plan, &ended{Finished: f})
}

// runRange runs items without effects, and writes their results in one
// statement. Others get jobs of their own.
func (s *Service) runRange(ctx context.Context, tenantID, batchID uuid.UUID, first, end int32, plan *workflow.Plan) error {
	select {
	case s.ranges <- struct{}{}:
		defer func() { <-s.ranges }()
	case <-ctx.Done():
		return ctx.Err()
	}
	batch, err := s.q.BatchGetForItems(ctx, s.Pool, queries.BatchGetForItemsParams{TenantID: tenantID, ID: batchID})
	if err != nil {
		return postgres.Translate(fmt.Errorf("get batch %s: %w", batchID, err))
	}
	if !batch.MayBegin {
		return nil // it was paused or cancelled while the range waited
	}
	var custom any
	if batch.CustomInput != nil {
		if custom, err = exactjson.Decode(batch.CustomInput); err != nil {
			return fmt.Errorf("read the custom input of batch %s: %w", batchID, err)
		}
	}
	rows, err := s.q.BatchItemsGetPending(ctx, s.Pool, queries.BatchItemsGetPendingParams{
		TenantID: tenantID, BatchID: batchID, FirstItem: first, EndItem: end,
	})
	if err != nil {
		return postgres.Translate(fmt.Errorf("get items of batch %s: %w", batchID, err))
	}
	items := make([]*ended, 0, len(rows))
	var alone []int32
	for i := range rows {
		if plan.Effects || rows[i].HasBegun {
			alone = append(alone, rows[i].ItemIndex)
			continue
		}
		item, err := s.runPure(ctx, tenantID, &rows[i], plan, custom)
		if err != nil {
			return err
		}
		items = append(items, item)
	}
	if err := s.finish(ctx, tenantID, batchID, plan, items); err != nil || len(alone) == 0 {
		return err
	}
	return postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error { return s.enqueue(ctx, tx, tenantID, batchID, alone, 1) })
}

// runPure runs one item. A fault of the service ends the item as failed, so
// that it does not keep the others of its range from ending.
func (s *Service) runPure(ctx context.Context, tenantID uuid.UUID, row *queries.BatchItemsGetPendingRow, plan *workflow.Plan, custom any) (*ended, error) {
	startedAt := s.Clock()
	input, err := exactjson.Decode(row.Input)
	if err == nil {
		var f *execution.Finished
		f, err = s.Executions.RunPure(ctx, execution.Item{
			TenantID: tenantID, ID: row.ID, Plan: plan, Input: input, Custom: custom, BorrowerID: row.BorrowerID,
			IsTest: row.IsTest, Attempt: int(row.Attempt), Tags: row.Tags, CreatedAt: row.CreatedAt,
		})
		if err == nil {
			return &ended{Finished: f, startedAt: startedAt}, nil
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.Log.LogAttrs(ctx, slog.LevelError, "an item of a batch cannot be run", slog.String("executionId", row.ID.String()), slog.Any("error", err))
	return broken(tenantID, row, startedAt)
}

// broken is the end of an item that a fault of the service keeps from running.
func broken(tenantID uuid.UUID, row *queries.BatchItemsGetPendingRow, at time.Time) (*ended, error) {
	outcome := &engine.Outcome{
		Status: engine.StatusFailed, StatusCode: 500, Output: map[string]any{}, ErrorMessage: "an unexpected error occurred",
	}
	result, err := json.Marshal(execution.NewResult(outcome))
	if err != nil {
		return nil, err
	}
	return &ended{startedAt: at, Finished: &execution.Finished{
		TenantID: tenantID, ID: row.ID, Outcome: outcome, Tags: row.Tags, ResultText: result, At: at,
	}}, nil
}
