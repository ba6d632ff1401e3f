package batch

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/jobs"
	"tranche/queries"
)

const (
	// cancelChunkItems is how many items one transaction ends.
	cancelChunkItems = 5000
	// waitingChunkItems is how many items that wait are read at a time; the state of each
	// has to be, of which one statement writes gatherBytesMax.
	waitingChunkItems = 200
)

// Cancel asks for the end of a batch that has not ended: items that do not run
// are cancelled, those that run end by themselves, and the output of all is
// still written (decisions 6.4). To ask again changes nothing. fault.NotFound if
// there is none, fault.Conflict where it has ended.
func (s *Service) Cancel(ctx context.Context, tenantID, id uuid.UUID) error {
	err := postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		row, err := s.q.BatchCancelRequest(ctx, tx, queries.BatchCancelRequestParams{
			TenantID: tenantID, ID: id, Unread: resultFailed + "the batch was cancelled before all items were read",
		})
		if err != nil {
			return err
		}
		if Status(row.Status) == StatusProcessing {
			_, err = s.Jobs.InsertTx(ctx, tx, jobs.BatchCancellation{TenantID: tenantID, BatchID: id}, nil)
		} else if row.WasPaused {
			_, err = s.Jobs.InsertTx(ctx, tx, jobs.BatchPostProcessing{TenantID: tenantID, BatchID: id}, nil)
		}
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		batch, err := s.Get(ctx, tenantID, id)
		switch {
		case err != nil:
			return err
		case batch.isBeingCancelled():
			return nil
		default:
			return batch.refusal("cancelled")
		}
	}
	if err != nil {
		return fmt.Errorf("cancel batch %s: %w", id, err)
	}
	return nil
}

// CancelItems ends the items of a cancelled batch that do not run. It reports
// whether nothing of the batch is left to be ended; else others run, and it is
// to be called again.
func (s *Service) CancelItems(ctx context.Context, tenantID, batchID uuid.UUID) (done bool, err error) {
	outcome := engine.CancelledOutcome()
	result, err := execution.ResultText(outcome)
	if err != nil {
		return false, err
	}
	if err := s.cancelChunks(ctx, tenantID, batchID, result); err != nil {
		return false, err
	}
	for {
		items, err := s.q.BatchItemsCancel(ctx, s.Pool, queries.BatchItemsCancelParams{
			TenantID: tenantID, BatchID: batchID, ItemsMax: cancelChunkItems, StatusCode: int32(outcome.StatusCode), Result: result,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			break
		}
		if err != nil {
			return false, postgres.Translate(fmt.Errorf("cancel items of batch %s: %w", batchID, err))
		}
		s.Executions.NoteEnded(outcome.Status, int(items))
	}
	batch, err := s.Get(ctx, tenantID, batchID)
	if err != nil {
		return false, err
	}
	if batch.CancelRequestedAt == nil || batch.Status != StatusProcessing {
		return true, nil
	}
	_, plan, err := s.Catalog.Plan(ctx, tenantID, batch.WorkflowID)
	if err != nil {
		return false, err
	}
	for ended := waitingChunkItems; ended == waitingChunkItems; {
		if ended, err = s.cancelWaiting(ctx, tenantID, batchID, plan); err != nil {
			return false, err
		}
	}
	p, err := s.advance(ctx, tenantID, batchID, plan)
	if err != nil {
		return false, err
	}
	return p.status != StatusProcessing || p.completed+p.failed == p.total, nil
}

// cancelWaiting ends some of the items that wait, for a time, a signal or a
// retry, and says how many.
func (s *Service) cancelWaiting(ctx context.Context, tenantID, batchID uuid.UUID, plan *workflow.Plan) (n int, err error) {
	ids, err := s.q.BatchItemsListPostponed(ctx, s.Pool, queries.BatchItemsListPostponedParams{
		TenantID: tenantID, BatchID: batchID, ItemsMax: waitingChunkItems,
	})
	if err != nil {
		return 0, postgres.Translate(fmt.Errorf("list what waits of batch %s: %w", batchID, err))
	}
	var items []*ended
	bytes := 0
	for _, id := range ids {
		f, err := s.Executions.Cancelled(ctx, tenantID, id, plan)
		if err != nil {
			return 0, err
		}
		if f == nil {
			continue
		}
		n++
		item := &ended{Finished: f, startedAt: f.At}
		items = append(items, item)
		if bytes += item.size(); bytes > gatherBytesMax {
			if err := s.finish(ctx, tenantID, batchID, plan, items); err != nil {
				return 0, err
			}
			items, bytes = nil, 0
		}
	}
	return n, s.finish(ctx, tenantID, batchID, plan, items)
}

// cancelChunks ends the items of a cancelled batch that wait in chunks. Chunks of
// which items run are left to the next call.
func (s *Service) cancelChunks(ctx context.Context, tenantID, batchID uuid.UUID, result []byte) error {
	chunks, err := s.q.BatchChunksList(ctx, s.Pool, queries.BatchChunksListParams{TenantID: tenantID, BatchID: batchID, ChunksMax: itemsMax})
	if err != nil {
		return postgres.Translate(fmt.Errorf("list the chunks of batch %s: %w", batchID, err))
	}
	for _, listed := range chunks {
		if err := s.cancelChunk(ctx, tenantID, batchID, listed.FirstItem, result); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) cancelChunk(ctx context.Context, tenantID, batchID uuid.UUID, first int32, result []byte) (err error) {
	c, err := s.getChunk(ctx, tenantID, batchID, first)
	if err != nil || c == nil || !c.row.IsCancelled || s.isHeld(c.row.Token, c.row.HolderID, c.row.HolderLives) {
		return err
	}
	if c.row.Token != nil { // what of it is recorded is not to be cancelled
		var h *heldChunk
		if h, err = s.hold(ctx, tenantID, batchID, first, c.row.Token); err != nil || h == nil {
			return err
		}
		defer func() { err = errors.Join(err, h.letGo(ctx)) }()
		if c, err = s.getChunk(ctx, tenantID, batchID, first); err != nil || c == nil {
			return err
		}
	}
	items, err := s.cancelledItems(c, result)
	if err != nil {
		return err
	}
	isRecorded, err := s.recordChunk(ctx, c, items)
	if isRecorded {
		s.Executions.NoteEnded(engine.StatusCancelled, len(items))
	}
	return err
}

// cancelledItems are the items of a chunk, of none of which an end is known, with
// the given result. Calls may have been made for them all the same, which a retry
// repeats under the same keys: so they keep the ids that they had.
func (s *Service) cancelledItems(c *chunk, result []byte) ([]*ended, error) {
	items := make([]*ended, len(c.row.Inputs))
	for i, text := range c.row.Inputs {
		input, err := exactjson.Decode([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("read input %d of chunk %d of batch %s: %w", i, c.first, c.batchID, err)
		}
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		if c.row.IdsFrom != nil {
			id = itemID(*c.row.IdsFrom, c.row.ItemIndexes[i]-c.first)
		}
		object, _ := input.(map[string]any)
		now := s.Clock()
		items[i] = &ended{startedAt: queries.CreatedAt(id), borrowerID: queries.Value(execution.BorrowerOf(object)), Finished: &execution.Finished{
			TenantID: c.tenantID, ID: id, Outcome: engine.CancelledOutcome(), ResultText: result, At: now,
		}}
	}
	return items, nil
}
