package batch

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"tranche/internal/execution"
	"tranche/queries"
)

// loading is an item of which a job wants to know how far it is.
type loading struct {
	index  int32
	row    *queries.BatchItemsGetRow // nil: there is no such item
	batch  *queries.BatchGetForItemsRow
	custom any // of the batch
}

// load reads items of one batch.
func (s *Service) load(ctx context.Context, tenantID, batchID uuid.UUID, items []*loading) error {
	batch, err := s.q.BatchGetForItems(ctx, s.Pool, queries.BatchGetForItemsParams{TenantID: tenantID, ID: batchID})
	if err != nil {
		return fmt.Errorf("get batch %s: %w", batchID, err)
	}
	custom, err := customOf(batchID, batch.CustomInput)
	if err != nil {
		return err
	}
	indexes := make([]int32, len(items))
	for i, it := range items {
		indexes[i] = it.index
	}
	rows, err := s.q.BatchItemsGet(ctx, s.Pool, queries.BatchItemsGetParams{TenantID: tenantID, BatchID: batchID, Indexes: indexes})
	if err != nil {
		return fmt.Errorf("get %d items of batch %s: %w", len(items), batchID, err)
	}
	byIndex := make(map[int32]*queries.BatchItemsGetRow, len(rows))
	for i := range rows {
		byIndex[rows[i].ItemIndex] = &rows[i]
	}
	for _, it := range items {
		it.row, it.batch, it.custom = byIndex[it.index], &batch, custom
	}
	return nil
}

// checkpoint is a state that is to be made durable.
type checkpoint struct {
	*execution.Checkpoint
	isHeld bool // by this process; else it was not written
}

// checkpoint writes the states of items of one batch.
func (s *Service) checkpoint(ctx context.Context, tenantID, batchID uuid.UUID, items []*checkpoint) error {
	p := queries.BatchItemsCheckpointParams{TenantID: tenantID, BatchID: batchID, LeaseProcessID: s.Executions.ProcessID}
	byID := make(map[uuid.UUID]*checkpoint, len(items))
	for _, it := range items {
		byID[it.ID] = it
		p.Ids = append(p.Ids, it.ID)
		p.LeaseTokens = append(p.LeaseTokens, it.LeaseToken)
		p.Begins = append(p.Begins, it.Begins)
		p.StartedAt = append(p.StartedAt, it.StartedAt)
		p.DeadlineAt = append(p.DeadlineAt, it.DeadlineAt)
		p.States = append(p.States, string(it.State))
		p.TasksCompleted = append(p.TasksCompleted, it.TasksCompleted)
		p.TasksFailed = append(p.TasksFailed, it.TasksFailed)
	}
	held, err := s.q.BatchItemsCheckpoint(ctx, s.Pool, p)
	if err != nil {
		return fmt.Errorf("write the states of %d items of batch %s: %w", len(items), batchID, err)
	}
	for _, id := range held {
		byID[id].isHeld = true
	}
	return nil
}
