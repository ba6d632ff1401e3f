package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/batch"
	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/internal/writebatch"
	"tranche/queries"
)

// writers have concurrent items of a batch share statements. While the database is
// unavailable they try again, so that the results of effects are not lost.
type writers struct {
	loads       *writebatch.Writer[batch.Key, int32, loadedItem] // recorded items, by index
	checkpoints *writebatch.Writer[batch.Key, *execution.Checkpoint, bool]
	ends        *writebatch.Writer[batch.Key, *finishedItem, struct{}]
	// These record items of chunks for the first time.
	firstStates *writebatch.Writer[batch.Key, *firstState, bool]
	onlyEnds    *writebatch.Writer[batch.Key, *onlyEnd, struct{}]
}

func (r *Runner) newWriters() writers {
	return writers{
		loads: writebatch.New(writebatch.Config[batch.Key, int32, loadedItem]{Write: r.loadItems, Retry: true}),
		checkpoints: writebatch.New(writebatch.Config[batch.Key, *execution.Checkpoint, bool]{
			Write: r.writeCheckpoints, Retry: true, Size: func(c *execution.Checkpoint) int { return len(c.State) },
		}),
		ends: writebatch.New(writebatch.Config[batch.Key, *finishedItem, struct{}]{
			Retry: true, Size: (*finishedItem).size,
			Write: func(ctx context.Context, key batch.Key, items []*finishedItem) ([]struct{}, error) {
				return nil, r.finish(ctx, key, items)
			},
		}),
		firstStates: writebatch.New(writebatch.Config[batch.Key, *firstState, bool]{
			Write: r.recordFirstStates, Retry: true, Size: func(s *firstState) int { return len(s.row.input) + len(s.checkpoint.State) },
		}),
		onlyEnds: writebatch.New(writebatch.Config[batch.Key, *onlyEnd, struct{}]{
			Write: r.recordOnlyEnds, Retry: true, Size: func(e *onlyEnd) int { return len(e.row.input) + e.size() },
		}),
	}
}

// finishedItem is an item that has ended and whose end is not recorded yet.
type finishedItem struct {
	*execution.Finished
	plan       *workflow.Plan
	borrowerID string // of an item that has no row yet
}

func (it *finishedItem) size() int { return len(it.State) + len(it.ResultText) }

// loadItems reads recorded items.
func (r *Runner) loadItems(ctx context.Context, key batch.Key, indexes []int32) ([]loadedItem, error) {
	b, err := r.getBatch(ctx, key)
	if err != nil {
		return nil, err
	}
	rows, err := r.q.BatchItemsGet(ctx, r.Pool, queries.BatchItemsGetParams{TenantID: key.TenantID, BatchID: key.ID, Indexes: indexes})
	if err != nil {
		return nil, fmt.Errorf("get %d items of batch %s: %w", len(indexes), key.ID, err)
	}
	byIndex := make(map[int32]queries.BatchItemsGetRow, len(rows))
	for _, row := range rows {
		byIndex[row.ItemIndex] = row
	}
	items := make([]loadedItem, len(indexes))
	for i, index := range indexes {
		row, exists := byIndex[index]
		items[i] = loadedItem{exists: exists, row: row, batch: b}
	}
	return items, nil
}

// writeCheckpoints writes the states of recorded items. It returns which of them this process
// holds; the states of the others are not written.
func (r *Runner) writeCheckpoints(ctx context.Context, key batch.Key, checkpoints []*execution.Checkpoint) ([]bool, error) {
	p := queries.BatchItemsCheckpointParams{TenantID: key.TenantID, BatchID: key.ID, LeaseProcessID: r.Executions.ProcessID}
	for _, c := range checkpoints {
		p.Ids = append(p.Ids, c.ID)
		p.LeaseTokens = append(p.LeaseTokens, c.LeaseToken)
		p.Begins = append(p.Begins, c.Begins)
		p.StartedAt = append(p.StartedAt, c.StartedAt)
		p.DeadlineAt = append(p.DeadlineAt, c.DeadlineAt)
		p.States = append(p.States, string(c.State))
		p.TasksCompleted = append(p.TasksCompleted, c.TasksCompleted)
		p.TasksFailed = append(p.TasksFailed, c.TasksFailed)
	}
	held, err := r.q.BatchItemsCheckpoint(ctx, r.Pool, p)
	if err != nil {
		return nil, fmt.Errorf("write the states of %d items of batch %s: %w", len(checkpoints), key.ID, err)
	}
	return contained(p.Ids, held), nil
}

// contained returns for each id whether it is in the set.
func contained(ids, set []uuid.UUID) []bool {
	has := make(map[uuid.UUID]bool, len(set))
	for _, id := range set {
		has[id] = true
	}
	results := make([]bool, len(ids))
	for i, id := range ids {
		results[i] = has[id]
	}
	return results
}

// finish records the ends of recorded items, counts each of them once, and dispatches the
// next items, in one transaction. It skips items whose lease this process has lost.
func (r *Runner) finish(ctx context.Context, key batch.Key, items []*finishedItem) error {
	if len(items) == 0 {
		return nil
	}
	params, err := finishParams(key, items)
	if err != nil {
		return err
	}
	params.NewColumns = r.columns.unseen(key.ID, items)
	isRecorded := false
	err = postgres.InTx(ctx, r.Pool, func(tx pgx.Tx) error {
		row, err := r.q.BatchItemsFinish(ctx, tx, params)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("record the ends of %d items of batch %s: %w", len(items), key.ID, err)
		}
		isRecorded = true
		return r.Dispatcher.DispatchTx(ctx, tx, key, items[0].plan, batch.ProgressOf(queries.BatchProgressGetForUpdateRow(row)))
	})
	if err == nil && isRecorded {
		r.columns.add(key.ID, params.NewColumns)
	}
	return err
}

func finishParams(key batch.Key, items []*finishedItem) (queries.BatchItemsFinishParams, error) {
	p := queries.BatchItemsFinishParams{TenantID: key.TenantID, BatchID: key.ID}
	for _, it := range items {
		tags := []byte("[]")
		if len(it.Tags) > 0 {
			var err error
			if tags, err = json.Marshal(it.Tags); err != nil {
				return p, fmt.Errorf("encode the tags of execution %s: %w", it.ID, err)
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
		p.StartedAt = append(p.StartedAt, it.StartedAt)
		p.CompletedAt = append(p.CompletedAt, it.At)
		p.Tags = append(p.Tags, string(tags))
		p.States = append(p.States, string(it.State))
		p.Results = append(p.Results, string(it.ResultText))
	}
	return p, nil
}

// recordChunk records the items of a chunk, which have all ended, as executions in the order
// of the chunk, counts them, and dispatches the next items, in one transaction. It returns
// false if the items were recorded before, or if the chunk was split or leased meanwhile.
func (r *Runner) recordChunk(ctx context.Context, c *chunk, items []*finishedItem) (bool, error) {
	p, err := finishParams(c.key, items)
	if err != nil {
		return false, err
	}
	params := queries.BatchChunkRecordParams{
		TenantID: c.key.TenantID, BatchID: c.key.ID, FirstItem: c.first, Token: c.row.Token, WorkflowType: c.workflow.Type,
		Ids: p.Ids, Statuses: p.Statuses, SourceFailed: p.SourceFailed,
		StatusCodes: p.StatusCodes, TasksCompleted: p.TasksCompleted, TasksFailed: p.TasksFailed,
		StartedAt: p.StartedAt, CompletedAt: p.CompletedAt, Tags: p.Tags, States: p.States, Results: p.Results,
	}
	for _, it := range items {
		params.BorrowerIds = append(params.BorrowerIds, it.borrowerID)
	}
	count := r.countChunk(c, items)
	isRecorded := false
	err = postgres.InTx(ctx, r.Pool, func(tx pgx.Tx) error {
		chunks, err := r.q.BatchChunkRecord(ctx, tx, params)
		if err != nil {
			return fmt.Errorf("record chunk %d of batch %s: %w", c.first, c.key.ID, err)
		}
		if chunks == 0 {
			return nil
		}
		isRecorded = true
		row, err := r.q.BatchChunkCount(ctx, tx, count)
		if err != nil {
			return fmt.Errorf("count chunk %d of batch %s: %w", c.first, c.key.ID, err)
		}
		return r.Dispatcher.DispatchTx(ctx, tx, c.key, c.plan, batch.ProgressOf(queries.BatchProgressGetForUpdateRow(row)))
	})
	if err != nil || !isRecorded {
		return false, err
	}
	r.columns.add(c.key.ID, count.NewColumns)
	return true, nil
}

// countChunk counts how the items of a chunk have ended.
func (r *Runner) countChunk(c *chunk, items []*finishedItem) queries.BatchChunkCountParams {
	count := queries.BatchChunkCountParams{
		TenantID: c.key.TenantID, BatchID: c.key.ID, Ended: int32(len(items)), NewColumns: r.columns.unseen(c.key.ID, items),
	}
	for _, it := range items {
		if it.Outcome.Status != engine.StatusCompleted {
			count.Failed++
			continue
		}
		count.Completed++
		if it.Outcome.SourceFailed {
			count.SourceFailedCount++
		}
	}
	return count
}

// firstState is the first durable state of an item of a chunk, which has no row yet.
type firstState struct {
	row        *chunkRow
	checkpoint *execution.Checkpoint
}

// recordFirstStates records items of chunks as running executions. It returns which of them
// were recorded; the chunks of the others belong to another worker now.
func (r *Runner) recordFirstStates(ctx context.Context, key batch.Key, items []*firstState) ([]bool, error) {
	p := queries.BatchChunkItemsBeginParams{
		TenantID: key.TenantID, BatchID: key.ID, WorkflowType: items[0].row.workflowType, LeaseProcessID: r.Executions.ProcessID,
	}
	var chunks leasedChunks
	for _, it := range items {
		chunks.add(it.row)
		p.Ids = append(p.Ids, it.row.id)
		p.ChunkTokens = append(p.ChunkTokens, it.row.token)
		p.LeaseTokens = append(p.LeaseTokens, it.checkpoint.LeaseToken)
		p.ItemIndexes = append(p.ItemIndexes, it.row.index)
		p.RowNumbers = append(p.RowNumbers, it.row.rowNumber)
		p.FileNames = append(p.FileNames, it.row.fileName)
		p.BorrowerIds = append(p.BorrowerIds, it.row.borrowerID)
		p.CreatedAt = append(p.CreatedAt, queries.CreatedAt(it.row.id))
		p.StartedAt = append(p.StartedAt, it.checkpoint.StartedAt)
		p.DeadlineAt = append(p.DeadlineAt, it.checkpoint.DeadlineAt)
		p.TasksCompleted = append(p.TasksCompleted, it.checkpoint.TasksCompleted)
		p.TasksFailed = append(p.TasksFailed, it.checkpoint.TasksFailed)
		p.Inputs = append(p.Inputs, it.row.input)
		p.States = append(p.States, string(it.checkpoint.State))
	}
	p.Chunks, p.Tokens = chunks.firsts, chunks.tokens
	begun, err := r.q.BatchChunkItemsBegin(ctx, r.Pool, p)
	if err != nil {
		return nil, fmt.Errorf("record %d running items of batch %s: %w", len(items), key.ID, err)
	}
	return contained(p.Ids, begun), nil
}

// onlyEnd is the end of an item of a chunk that has no row yet: its only record.
type onlyEnd struct {
	row *chunkRow
	*finishedItem
}

// recordOnlyEnds records items of chunks as executions that have ended, and counts each of
// them once, in one statement. It skips items of chunks that this process has lost. If the
// next items are due, another transaction dispatches them. If the process dies between the
// two, the next run of one of the chunks does.
func (r *Runner) recordOnlyEnds(ctx context.Context, key batch.Key, items []*onlyEnd) ([]struct{}, error) {
	ends := make([]*finishedItem, len(items))
	for i, it := range items {
		ends[i] = it.finishedItem
	}
	f, err := finishParams(key, ends)
	if err != nil {
		return nil, err
	}
	p := queries.BatchChunkItemsRecordParams{
		TenantID: key.TenantID, BatchID: key.ID, WorkflowType: items[0].row.workflowType, NewColumns: r.columns.unseen(key.ID, ends),
		Ids: f.Ids, Statuses: f.Statuses, SourceFailed: f.SourceFailed, StatusCodes: f.StatusCodes, TasksCompleted: f.TasksCompleted,
		TasksFailed: f.TasksFailed, StartedAt: f.StartedAt, CompletedAt: f.CompletedAt, Tags: f.Tags, States: f.States, Results: f.Results,
	}
	var chunks leasedChunks
	for _, it := range items {
		chunks.add(it.row)
		p.ChunkTokens = append(p.ChunkTokens, it.row.token)
		p.ItemIndexes = append(p.ItemIndexes, it.row.index)
		p.RowNumbers = append(p.RowNumbers, it.row.rowNumber)
		p.FileNames = append(p.FileNames, it.row.fileName)
		p.BorrowerIds = append(p.BorrowerIds, it.row.borrowerID)
		p.CreatedAt = append(p.CreatedAt, queries.CreatedAt(it.row.id))
		p.Inputs = append(p.Inputs, it.row.input)
	}
	p.Chunks, p.Tokens = chunks.firsts, chunks.tokens
	p.FirstID, p.LastID = slices.MinFunc(p.Ids, compareIDs), slices.MaxFunc(p.Ids, compareIDs)
	row, err := r.q.BatchChunkItemsRecord(ctx, r.Pool, p)
	// Without a row, an earlier attempt or another worker has recorded the items, or nobody.
	isRecorded := err == nil
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("record the ends of %d items of batch %s: %w", len(items), key.ID, err)
	}
	if isRecorded {
		r.columns.add(key.ID, p.NewColumns)
	}
	plan := items[0].plan
	if !isRecorded || batch.ProgressOf(queries.BatchProgressGetForUpdateRow(row)).IsDue(plan) {
		if _, err := r.Dispatcher.Advance(ctx, key, plan); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// leasedChunks collects the chunks of items and their tokens, each once.
type leasedChunks struct {
	firsts []int32
	tokens []uuid.UUID
}

func (l *leasedChunks) add(row *chunkRow) {
	if !slices.Contains(l.tokens, row.token) {
		l.firsts, l.tokens = append(l.firsts, row.first), append(l.tokens, row.token)
	}
}
