package batch

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/internal/writebatch"
	"tranche/queries"
)

// retryItemsMax is how many items one transaction prepares. It prepares fewer if their
// states exceed writebatch.BytesMax.
const retryItemsMax = 500

// RetryItems prepares the items of a retry and dispatches them. The progress is recorded
// with each transaction, so that after a crash RetryItems continues with the next items. It
// leaves a batch alone that is paused, cancelled or past this step.
func (s *Service) RetryItems(ctx context.Context, key Key) error {
	for {
		r, err := s.getRetry(ctx, key)
		if err != nil || r == nil {
			return err
		}
		sizes, err := s.q.BatchItemsListRetrySizes(ctx, s.Pool, queries.BatchItemsListRetrySizesParams{
			TenantID: key.TenantID, BatchID: key.ID, FirstItem: r.from, ItemsMax: retryItemsMax,
			Failed: r.mode.failed(), SourceFailed: r.mode.sourceFailed(), WithStates: r.withStates,
		})
		if err != nil {
			return postgres.Translate(fmt.Errorf("find the items of batch %s to retry: %w", key.ID, err))
		}
		if len(sizes) == 0 {
			return s.endRetry(ctx, r)
		}
		if err := s.retryPage(ctx, r, sizes); err != nil {
			return err
		}
	}
}

// retry is a retry whose items are being prepared.
type retry struct {
	key        Key
	attempt    int32 // of the batch
	from       int32 // items below this index are prepared
	plan       *workflow.Plan
	mode       RetryMode
	withStates bool // items may continue from their states; without effects, all begin anew
}

// getRetry returns nil if no items of the batch are to be prepared.
func (s *Service) getRetry(ctx context.Context, key Key) (*retry, error) {
	row, err := s.q.BatchRetryGet(ctx, s.Pool, queries.BatchRetryGetParams{TenantID: key.TenantID, ID: key.ID})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("get the retry of batch %s: %w", key.ID, err))
	}
	_, plan, err := s.Catalog.Plan(ctx, key.TenantID, row.WorkflowID)
	if err != nil {
		return nil, err
	}
	return &retry{
		key: key, attempt: row.Attempt, from: row.RetryFrom, plan: plan, mode: RetryMode(row.RetryMode),
		withStates: plan.Effects || len(plan.References) > 0,
	}, nil
}

// retryPage prepares the items, as many in a transaction as its limit of bytes allows. It
// stops if the batch has changed meanwhile.
func (s *Service) retryPage(ctx context.Context, r *retry, sizes []queries.BatchItemsListRetrySizesRow) error {
	for len(sizes) > 0 {
		n, bytes := 1, sizes[0].StateBytes
		for ; n < len(sizes) && bytes+sizes[n].StateBytes <= writebatch.BytesMax; n++ {
			bytes += sizes[n].StateBytes
		}
		next := sizes[n-1].ItemIndex + 1
		isCurrent, err := s.prepare(ctx, r, next)
		if err != nil || !isCurrent {
			return err
		}
		r.from, sizes = next, sizes[n:]
	}
	return nil
}

// prepare prepares the items from r.from up to next. It returns false if the batch was
// paused, cancelled or retried, or if another worker has prepared them.
func (s *Service) prepare(ctx context.Context, r *retry, next int32) (bool, error) {
	items, err := s.q.BatchItemsListRetryable(ctx, s.Pool, queries.BatchItemsListRetryableParams{
		TenantID: r.key.TenantID, BatchID: r.key.ID, FirstItem: r.from, EndItem: next,
		Failed: r.mode.failed(), SourceFailed: r.mode.sourceFailed(), WithStates: r.withStates,
	})
	if err != nil {
		return false, postgres.Translate(fmt.Errorf("list the items of batch %s to retry: %w", r.key.ID, err))
	}
	p := queries.BatchItemsRetryParams{
		TenantID: r.key.TenantID, BatchID: r.key.ID, Attempt: r.attempt, FirstItem: r.from, NextItem: next,
		RefusedIds: []uuid.UUID{}, Ids: []uuid.UUID{}, States: []string{}, TasksCompleted: []int32{}, // nil would be NULL
	}
	for i := range items {
		it := &items[i]
		if it.IsRefused {
			p.RefusedIds = append(p.RefusedIds, it.ID) // neither the item nor the schema has changed
			continue
		}
		state, completed, err := s.retryState(ctx, r, it)
		if err != nil {
			return false, err
		}
		if engine.Status(it.Status) == engine.StatusCompleted {
			p.Completed++
		} else {
			p.Failed++
		}
		p.Ids, p.States, p.TasksCompleted = append(p.Ids, it.ID), append(p.States, state), append(p.TasksCompleted, completed)
	}
	batches, err := s.q.BatchItemsRetry(ctx, s.Pool, p)
	if err != nil {
		return false, postgres.Translate(fmt.Errorf("prepare items of batch %s: %w", r.key.ID, err))
	}
	if batches == 0 {
		return false, nil
	}
	s.Executions.NoteEnded(engine.StatusFailed, len(p.RefusedIds))
	return true, nil
}

// retryState returns the state with which an item begins the attempt, and how many of its
// tasks keep their results. The state of an item that begins anew is empty.
func (s *Service) retryState(ctx context.Context, r *retry, it *queries.BatchItemsListRetryableRow) (text string, completed int32, err error) {
	if it.State == nil {
		return "", 0, nil
	}
	plan, state, err := s.Executions.Stored(ctx, r.key.TenantID, it.ID, r.plan, it.State)
	if err != nil || !plan.Effects {
		return "", 0, err
	}
	state.Attempt = int(it.Attempt)
	if engine.Status(it.Status) == engine.StatusCompleted {
		engine.ResetSources(plan, state)
	} else if _, _, err := engine.Reset(plan, state, nil); err != nil {
		return "", 0, err
	}
	for _, task := range state.Tasks {
		if task.Status == engine.StatusCompleted {
			completed++
		}
	}
	encoded, err := state.JSON()
	if err != nil {
		return "", 0, fmt.Errorf("encode the state of execution %s: %w", it.ID, err)
	}
	return string(encoded), completed, nil
}

// endRetry dispatches the prepared items.
func (s *Service) endRetry(ctx context.Context, r *retry) error {
	return postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		row, err := s.q.BatchRetryEnd(ctx, tx, queries.BatchRetryEndParams{TenantID: r.key.TenantID, ID: r.key.ID, Attempt: r.attempt})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("end the preparation of the retry of batch %s: %w", r.key.ID, err)
		}
		return s.Dispatcher.DispatchTx(ctx, tx, r.key, r.plan, ProgressOf(queries.BatchProgressGetForUpdateRow(row)))
	})
}
