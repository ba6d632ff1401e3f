package batch

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/catalog"
	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/limit"
	"tranche/internal/liveness"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/jobs"
	"tranche/queries"
)

// Items without effects wait in chunks and become executions when they end: the
// transaction that records the items of a chunk removes it, so whoever comes
// second finds nothing to do. Nothing outside has seen what a crash undoes.

// recordedBytesMax is how many bytes of states and results a chunk may come to before
// they are recorded. They are in memory several times over, as values, as texts and as a
// statement, and so are those of every other chunk that runs. More at a time is not
// faster.
const recordedBytesMax = 4 << 20

// chunk is one that waits, and what it takes to run it.
type chunk struct {
	tenantID, batchID uuid.UUID
	first             int32
	workflow          *catalog.Workflow
	plan              *workflow.Plan
	row               queries.BatchChunkGetRow
}

// runPureChunk runs the items of a chunk in memory and records them in one
// transaction. It is left alone while the batch is paused or once it is cancelled.
// Where another is faster its job is to look again: the other may have died while its
// commit was on its way, after its own job had become this one.
func (s *Service) runPureChunk(ctx context.Context, tenantID, batchID uuid.UUID, first int32, plan *workflow.Plan) (execution.Holding, error) {
	leave, err := s.turns.Acquire(ctx, limit.Request{TenantID: tenantID, BatchID: batchID})
	if err != nil {
		return execution.Held, err
	}
	defer leave()
	c, err := s.getChunk(ctx, tenantID, batchID, first)
	if err != nil || c == nil || !c.row.MayBegin {
		return execution.Held, err
	}
	if c.row.Token != nil {
		return execution.HeldElsewhere, nil
	}
	c.plan = plan // the latest version of a workflow that it runs may have got effects meanwhile
	custom, err := customOf(batchID, c.row.CustomInput)
	if err != nil {
		return execution.Held, err
	}
	items, size := make([]*ended, 0, len(c.row.Inputs)), 0
	for _, input := range c.row.Inputs {
		if size > recordedBytesMax {
			if isSplit, err := s.splitChunk(ctx, c, len(items)); err != nil || !isSplit {
				return execution.HeldElsewhere, err
			}
			break
		}
		id, err := uuid.NewV7()
		if err != nil {
			return execution.Held, err
		}
		item, err := s.runPure(ctx, execution.Item{
			TenantID: tenantID, ID: id, Plan: plan, Custom: custom, IsTest: c.row.IsTest, Attempt: 1,
		}, input)
		if err != nil {
			return execution.Held, err
		}
		items = append(items, item)
		size += item.size()
	}
	isRecorded, err := s.recordChunk(ctx, c, items)
	if err != nil || !isRecorded {
		return execution.HeldElsewhere, err
	}
	return execution.Held, nil
}

// splitChunk leaves the first items in a chunk, which have run, and gives the
// others a chunk and a job of their own; false if the chunk is another's now or has been
// split.
func (s *Service) splitChunk(ctx context.Context, c *chunk, items int) (isSplit bool, err error) {
	rest := c.row.ItemIndexes[items:]
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		chunks, err := s.q.BatchChunkSplit(ctx, tx, queries.BatchChunkSplitParams{
			TenantID: c.tenantID, BatchID: c.batchID, FirstItem: c.first, Items: int32(len(c.row.ItemIndexes)), Moved: int32(len(rest)), MovedFrom: rest[0],
		})
		if err != nil {
			return fmt.Errorf("split chunk %d of batch %s: %w", c.first, c.batchID, err)
		}
		if chunks == 0 {
			return nil
		}
		isSplit = true
		return s.enqueue(ctx, tx, c.batchID, []jobs.BatchItemRun{{
			TenantID: c.tenantID, BatchID: c.batchID, FirstItem: rest[0], EndItem: rest[len(rest)-1] + 1, IsChunk: true,
		}})
	})
	return isSplit, err
}

// getChunk returns nil if the items of the chunk are recorded.
func (s *Service) getChunk(ctx context.Context, tenantID, batchID uuid.UUID, first int32) (*chunk, error) {
	c := &chunk{tenantID: tenantID, batchID: batchID, first: first}
	var err error
	c.row, err = s.q.BatchChunkGet(ctx, s.Pool, queries.BatchChunkGetParams{
		TenantID: tenantID, BatchID: batchID, FirstItem: first, DeadAfterSeconds: liveness.DeadAfter.Seconds(),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("get chunk %d of batch %s: %w", first, batchID, err))
	}
	c.workflow, c.plan, err = s.Catalog.Plan(ctx, tenantID, c.row.WorkflowID)
	return c, err
}

// recordChunk makes executions of the items of a chunk, in its order, counts
// them and feeds the batch: one transaction. Items that were recorded before, or whose chunk is another's now or has been split,
// are passed over.
func (s *Service) recordChunk(ctx context.Context, c *chunk, items []*ended) (isRecorded bool, err error) {
	p, err := finishParams(c.tenantID, c.batchID, items)
	if err != nil {
		return false, err
	}
	params := queries.BatchChunkRecordParams{
		TenantID: c.tenantID, BatchID: c.batchID, FirstItem: c.first, Token: c.row.Token, WorkflowType: c.workflow.Type,
		Ids: p.Ids, Statuses: p.Statuses, SourceFailed: p.SourceFailed,
		StatusCodes: p.StatusCodes, TasksCompleted: p.TasksCompleted, TasksFailed: p.TasksFailed,
		StartedAt: p.StartedAt, CompletedAt: p.CompletedAt, Tags: p.Tags, States: p.States, Results: p.Results,
	}
	count := queries.BatchChunkCountParams{
		TenantID: c.tenantID, BatchID: c.batchID, Ended: int32(len(items)), NewColumns: s.columns.unseen(c.batchID, items),
	}
	for _, it := range items {
		params.BorrowerIds = append(params.BorrowerIds, it.borrowerID)
		if it.Outcome.Status != engine.StatusCompleted {
			count.Failed++
			continue
		}
		count.Completed++
		if it.Outcome.SourceFailed {
			count.SourceFailedCount++
		}
	}
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		chunks, err := s.q.BatchChunkRecord(ctx, tx, params)
		if err != nil {
			return fmt.Errorf("record chunk %d of batch %s: %w", c.first, c.batchID, err)
		}
		if isRecorded = chunks > 0; !isRecorded {
			return nil
		}
		row, err := s.q.BatchChunkCount(ctx, tx, count)
		if err != nil {
			return fmt.Errorf("count chunk %d of batch %s: %w", c.first, c.batchID, err)
		}
		return s.feed(ctx, tx, c.tenantID, c.batchID, c.plan, progressOf(queries.BatchProgressGetForUpdateRow(row)))
	})
	if err != nil || !isRecorded {
		return false, err
	}
	s.columns.note(c.batchID, count.NewColumns)
	return true, nil
}
