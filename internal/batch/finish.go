package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/execution"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/queries"
)

// ended is an item that has ended and is not written yet.
type ended struct {
	*execution.Finished
	plan       *workflow.Plan // of the items that finishGathered ends
	startedAt  time.Time      // of an item that had no lease; of others it is recorded
	borrowerID string         // of an item without effects; of others it is recorded
}

// finishGathered is finish for items that were gathered.
func (s *Service) finishGathered(ctx context.Context, tenantID, batchID uuid.UUID, items []*ended) error {
	return s.finish(ctx, tenantID, batchID, items[0].plan, items)
}

// finish writes the ends of items and counts them, each once, and feeds the
// batch: one transaction. Items that are no longer this process' to end are
// passed over.
func (s *Service) finish(ctx context.Context, tenantID, batchID uuid.UUID, plan *workflow.Plan, items []*ended) error {
	if len(items) == 0 {
		return nil
	}
	params, err := finishParams(tenantID, batchID, items)
	if err != nil {
		return err
	}
	params.NewColumns = s.columns.unseen(batchID, items)
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		row, err := s.q.BatchItemsFinish(ctx, tx, params)
		if errors.Is(err, pgx.ErrNoRows) {
			params.NewColumns = nil // they are not recorded
			return nil
		}
		if err != nil {
			return fmt.Errorf("record %d items of batch %s: %w", len(items), batchID, err)
		}
		return s.feed(ctx, tx, tenantID, batchID, plan, progressOf(queries.BatchProgressGetForUpdateRow(row)))
	})
	if err != nil {
		return err
	}
	s.columns.note(batchID, params.NewColumns)
	return nil
}

func finishParams(tenantID, batchID uuid.UUID, items []*ended) (queries.BatchItemsFinishParams, error) {
	p := queries.BatchItemsFinishParams{TenantID: tenantID, BatchID: batchID}
	for _, it := range items {
		tags := []byte("[]")
		if len(it.Tags) > 0 {
			var err error
			if tags, err = json.Marshal(it.Tags); err != nil {
				return p, fmt.Errorf("write the tags of execution %s: %w", it.ID, err)
			}
		}
		o := it.Outcome
		p.Ids = append(p.Ids, it.ID)
		p.LeaseTokens = append(p.LeaseTokens, it.LeaseToken)
		p.Statuses = append(p.Statuses, string(o.Status))
		p.SourceFailed = append(p.SourceFailed, o.SourceFailed)
		p.StatusCodes = append(p.StatusCodes, int32(o.StatusCode))
		p.TasksCompleted = append(p.TasksCompleted, int32(o.TasksCompleted))
		p.TasksFailed = append(p.TasksFailed, int32(o.TasksFailed))
		p.StartedAt = append(p.StartedAt, it.startedAt)
		p.CompletedAt = append(p.CompletedAt, it.At)
		p.Tags = append(p.Tags, string(tags))
		p.States = append(p.States, string(it.State))
		p.Results = append(p.Results, string(it.ResultText))
	}
	return p, nil
}
