package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/execution"
	"tranche/queries"
)

// chunkItem is an item of a chunk that runs and of which there is no row. It gets
// one when it ends, or before if more than its first calls has to be durable.
type chunkItem struct {
	*chunkRun
	at         int // in the chunk
	id         uuid.UUID
	borrowerID string
	// What it is to be recorded with: its first state that is written, or its end.
	first *execution.Checkpoint
	end   *ended

	written    bool // set by the writer before it answers, and read only after that
	isRecorded bool
}

// store makes a state of the item durable; false if the item is another's now.
func (it *chunkItem) store(ctx context.Context, c *execution.Checkpoint) (isHeld bool, err error) {
	if !c.Begins {
		return it.storeNext(ctx, it.TenantID, it.BatchID, c)
	}
	it.first = c
	if err := it.beginnings.add(ctx, it.TenantID, it.BatchID, it); err != nil {
		return false, err
	}
	it.noteWritten()
	return it.isRecorded, nil
}

// record writes the end of the item.
func (it *chunkItem) record(ctx context.Context, f *execution.Finished) error {
	it.end = &ended{Finished: f, startedAt: f.StartedAt}
	if err := it.records.add(ctx, it.TenantID, it.BatchID, it); err != nil {
		return err
	}
	it.noteWritten()
	return nil
}

// noteWritten counts the item among the recorded ones if it is one.
func (it *chunkItem) noteWritten() {
	if !it.written {
		return
	}
	it.isRecorded = true
	it.mu.Lock()
	defer it.mu.Unlock()
	it.recorded++
}

// keep records an item that is put off after some of its first calls were
// answered, so that these are not repeated: as this process', in the given state.
func (it *chunkItem) keep(ctx context.Context, f *execution.Finished, state []byte) error {
	f.LeaseToken = uuid.New() // also after an error: the commit may have succeeded all the same
	_, err := it.store(ctx, &execution.Checkpoint{
		ID: f.ID, LeaseToken: f.LeaseToken, Begins: true, StartedAt: f.StartedAt, DeadlineAt: f.DeadlineAt,
		State: state, TasksCompleted: int32(f.Outcome.TasksCompleted),
	})
	return err
}

// chunksOf are the chunks of items and their tokens, each once.
func chunksOf(items []*chunkItem) (chunks []int32, tokens []uuid.UUID) {
	seen := map[uuid.UUID]bool{}
	for _, it := range items {
		if !seen[it.token] {
			seen[it.token] = true
			chunks, tokens = append(chunks, it.FirstItem), append(tokens, it.token)
		}
	}
	return chunks, tokens
}

// beginItems makes executions that run of items of chunks.
func (s *Service) beginItems(ctx context.Context, tenantID, batchID uuid.UUID, items []*chunkItem) error {
	p := queries.BatchChunkItemsBeginParams{
		TenantID: tenantID, BatchID: batchID, WorkflowType: items[0].workflow.Type, LeaseProcessID: s.Executions.ProcessID,
	}
	p.Chunks, p.Tokens = chunksOf(items)
	byID := make(map[uuid.UUID]*chunkItem, len(items))
	for _, it := range items {
		byID[it.id] = it
		p.Ids = append(p.Ids, it.id)
		p.ChunkTokens = append(p.ChunkTokens, it.token)
		p.LeaseTokens = append(p.LeaseTokens, it.first.LeaseToken)
		p.ItemIndexes = append(p.ItemIndexes, it.row.ItemIndexes[it.at])
		p.RowNumbers = append(p.RowNumbers, it.row.RowNumbers[it.at])
		p.FileNames = append(p.FileNames, it.row.FileNames[it.at])
		p.BorrowerIds = append(p.BorrowerIds, it.borrowerID)
		p.CreatedAt = append(p.CreatedAt, queries.CreatedAt(it.id))
		p.StartedAt = append(p.StartedAt, it.first.StartedAt)
		p.DeadlineAt = append(p.DeadlineAt, it.first.DeadlineAt)
		p.TasksCompleted = append(p.TasksCompleted, it.first.TasksCompleted)
		p.TasksFailed = append(p.TasksFailed, it.first.TasksFailed)
		p.Inputs = append(p.Inputs, it.row.Inputs[it.at])
		p.States = append(p.States, string(it.first.State))
	}
	begun, err := s.q.BatchChunkItemsBegin(ctx, s.Pool, p)
	if err != nil {
		return fmt.Errorf("begin %d items of batch %s: %w", len(items), batchID, err)
	}
	for _, id := range begun {
		byID[id].written = true
	}
	return nil
}

// recordItems makes executions that have ended of items of chunks, and counts
// them, each once: one statement. Items of chunks that are no longer this process'
// are passed over. If it is time to feed the batch, another transaction does so; should
// this process die between the two, the next run of one of the chunks does.
func (s *Service) recordItems(ctx context.Context, tenantID, batchID uuid.UUID, items []*chunkItem) error {
	ends := make([]*ended, len(items))
	for i, it := range items {
		ends[i] = it.end
	}
	f, err := finishParams(tenantID, batchID, ends)
	if err != nil {
		return err
	}
	p := queries.BatchChunkItemsRecordParams{
		TenantID: tenantID, BatchID: batchID, WorkflowType: items[0].workflow.Type, NewColumns: s.columns.unseen(batchID, ends),
		Ids: f.Ids, Statuses: f.Statuses, SourceFailed: f.SourceFailed, StatusCodes: f.StatusCodes, TasksCompleted: f.TasksCompleted,
		TasksFailed: f.TasksFailed, StartedAt: f.StartedAt, CompletedAt: f.CompletedAt, Tags: f.Tags, States: f.States, Results: f.Results,
	}
	p.Chunks, p.Tokens = chunksOf(items)
	for _, it := range items {
		p.ChunkTokens = append(p.ChunkTokens, it.token)
		p.ItemIndexes = append(p.ItemIndexes, it.row.ItemIndexes[it.at])
		p.RowNumbers = append(p.RowNumbers, it.row.RowNumbers[it.at])
		p.FileNames = append(p.FileNames, it.row.FileNames[it.at])
		p.BorrowerIds = append(p.BorrowerIds, it.borrowerID)
		p.CreatedAt = append(p.CreatedAt, queries.CreatedAt(it.id))
		p.Inputs = append(p.Inputs, it.row.Inputs[it.at])
	}
	p.FirstID, p.LastID = slices.MinFunc(p.Ids, compareIDs), slices.MaxFunc(p.Ids, compareIDs)
	row, err := s.q.BatchChunkItemsRecord(ctx, s.Pool, p)
	isRecorded := err == nil // now: else by an attempt before, by another, or by nobody
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("record %d items of batch %s: %w", len(items), batchID, err)
	}
	if isRecorded {
		s.columns.note(batchID, p.NewColumns)
	}
	if plan := items[0].plan; !isRecorded || progressOf(queries.BatchProgressGetForUpdateRow(row)).isDue(plan) {
		if _, err := s.advance(ctx, tenantID, batchID, plan); err != nil {
			return err
		}
	}
	for _, it := range items {
		it.written = true
	}
	return nil
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }
