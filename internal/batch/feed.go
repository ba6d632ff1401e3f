package batch

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/jobs"
	"tranche/queries"
)

// Items are fed in windows: so many of a batch are enqueued at a time, and the
// next when half of them have ended. River's queue is first in, first out, so
// the windows of several batches and tenants take turns, and a batch that comes
// late waits for one window of each of the others, not for their ends. The first
// hundred items of a batch do not even wait for that (jobs.BatchItemRun).
const (
	// rangeItems is how many recorded items without effects one job runs.
	rangeItems = chunkItemsMax
	// The windows, in items: without effects, with effects, and of workflows that wait.
	// What waits may do so for hours, in which it holds nothing but its row, and must not
	// keep others from beginning.
	windowOfRanges  = 8 * rangeItems
	windowOfEffects = 12 * chunkItemsOfEffects
	windowOfWaits   = 20_000
)

// progress is how far the processing of a batch is.
type progress struct {
	status      Status
	isRetrying  bool  // items are being made ready for a retry
	isCancelled bool  // nothing more is to begin
	fedUntil    int32 // items below have been enqueued if they were pending
	// chunksFedUntil says the same of the items that wait in chunks.
	chunksFedUntil int32
	enqueued       int32 // how many of those have not ended
	total          int32
	completed      int32
	failed         int32
}

// next decides, in the transaction that changed the progress, how many more
// items to enqueue, and whether the processing is over.
func (p progress) next(window int32) (more int32, isOver bool) {
	switch {
	case p.status != StatusProcessing || p.isRetrying:
		return 0, false
	case p.completed+p.failed == p.total:
		return 0, true
	case p.isCancelled || p.fedUntil == p.total && p.chunksFedUntil == p.total || p.enqueued > window/2:
		return 0, false
	default:
		return window - p.enqueued, false
	}
}

// process begins the processing of a batch that is validated; any other batch
// is left alone.
func (s *Service) process(ctx context.Context, tenantID, batchID uuid.UUID) error {
	batch, err := s.q.BatchGetForItems(ctx, s.Pool, queries.BatchGetForItemsParams{TenantID: tenantID, ID: batchID})
	if err != nil {
		return fmt.Errorf("get batch %s: %w", batchID, err)
	}
	_, plan, err := s.Catalog.Plan(ctx, tenantID, batch.WorkflowID)
	if err != nil {
		return err
	}
	return postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		p, err := s.progressForUpdate(ctx, tx, tenantID, batchID)
		if err != nil || p.status != StatusPreProcessingComplete {
			return err
		}
		p.status = StatusProcessing
		return s.feed(ctx, tx, tenantID, batchID, plan, p)
	})
}

// advance feeds a batch, or begins its last stage, if it is time. It returns how
// far the batch was.
func (s *Service) advance(ctx context.Context, tenantID, batchID uuid.UUID, plan *workflow.Plan) (p progress, err error) {
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		if p, err = s.progressForUpdate(ctx, tx, tenantID, batchID); err != nil {
			return err
		}
		return s.feed(ctx, tx, tenantID, batchID, plan, p)
	})
	return p, err
}

// windowOf is how many items of a plan are enqueued at a time.
func windowOf(plan *workflow.Plan) int32 {
	switch {
	case plan.Waits():
		return windowOfWaits
	case plan.Effects:
		return windowOfEffects
	default:
		return windowOfRanges
	}
}

// isDue reports whether there is something for feed to do.
func (p progress) isDue(plan *workflow.Plan) bool {
	more, isOver := p.next(windowOf(plan))
	return more > 0 || isOver
}

// feed enqueues the next items of a batch if it is time, and the last stage
// when nothing is pending. The transaction holds the batch's row, so that both
// happen once.
func (s *Service) feed(ctx context.Context, tx pgx.Tx, tenantID, batchID uuid.UUID, plan *workflow.Plan, p progress) error {
	window, perJob := windowOf(plan), rangeItems
	if plan.Effects {
		perJob = 1
	}
	for {
		more, isOver := p.next(window)
		if isOver {
			return s.endProcessing(ctx, tx, tenantID, batchID)
		}
		if more == 0 {
			return nil
		}
		var fed int32
		var err error
		if p.chunksFedUntil < p.total {
			fed, err = s.feedChunks(ctx, tx, tenantID, batchID, plan, &p, more)
		} else {
			fed, err = s.feedItems(ctx, tx, tenantID, batchID, &p, more, perJob)
		}
		if err != nil {
			return err
		}
		err = s.q.BatchSetDispatched(ctx, tx, queries.BatchSetDispatchedParams{
			TenantID: tenantID, ID: batchID, FedUntil: p.fedUntil, ChunksFedUntil: p.chunksFedUntil, Fed: fed,
		})
		if err != nil {
			return fmt.Errorf("feed batch %s: %w", batchID, err)
		}
		p.enqueued += fed
	}
}

// feedChunks enqueues about so many items that wait in chunks.
func (s *Service) feedChunks(ctx context.Context, tx pgx.Tx, tenantID, batchID uuid.UUID, plan *workflow.Plan, p *progress, more int32) (fed int32, err error) {
	items := int32(chunkItems(plan))
	chunksMax := (more + items - 1) / items
	chunks, err := s.q.BatchChunksList(ctx, tx, queries.BatchChunksListParams{
		TenantID: tenantID, BatchID: batchID, FirstItem: p.chunksFedUntil, ChunksMax: chunksMax,
	})
	if err != nil {
		return 0, fmt.Errorf("list the chunks of batch %s: %w", batchID, err)
	}
	p.chunksFedUntil = p.total
	if len(chunks) == int(chunksMax) {
		p.chunksFedUntil = chunks[len(chunks)-1].EndItem
	}
	runs := make([]jobs.BatchItemRun, len(chunks))
	for i, c := range chunks {
		fed += c.Items
		runs[i] = jobs.BatchItemRun{TenantID: tenantID, BatchID: batchID, FirstItem: c.FirstItem, EndItem: c.EndItem, IsChunk: true}
	}
	return fed, s.enqueue(ctx, tx, batchID, runs)
}

// feedItems enqueues so many items that are recorded as pending.
func (s *Service) feedItems(ctx context.Context, tx pgx.Tx, tenantID, batchID uuid.UUID, p *progress, more int32, perJob int) (fed int32, err error) {
	items, err := s.q.BatchItemsListPending(ctx, tx, queries.BatchItemsListPendingParams{
		TenantID: tenantID, BatchID: batchID, FirstItem: p.fedUntil, ItemsMax: more,
	})
	if err != nil {
		return 0, fmt.Errorf("list the items of batch %s: %w", batchID, err)
	}
	p.fedUntil = p.total
	if len(items) == int(more) {
		p.fedUntil = items[len(items)-1] + 1
	}
	return int32(len(items)), s.enqueue(ctx, tx, batchID, runsOf(tenantID, batchID, items, perJob))
}

// runsOf are the jobs that run the items, perJob of them each.
func runsOf(tenantID, batchID uuid.UUID, items []int32, perJob int) (runs []jobs.BatchItemRun) {
	for first := 0; first < len(items); first += perJob {
		last := min(first+perJob, len(items)) - 1
		runs = append(runs, jobs.BatchItemRun{TenantID: tenantID, BatchID: batchID, FirstItem: items[first], EndItem: items[last] + 1})
	}
	return runs
}

func (s *Service) enqueue(ctx context.Context, tx pgx.Tx, batchID uuid.UUID, runs []jobs.BatchItemRun) error {
	if len(runs) == 0 {
		return nil
	}
	inserts := make([]river.InsertManyParams, len(runs))
	for i, run := range runs {
		inserts[i].Args = run
	}
	if _, err := s.Jobs.InsertManyTx(ctx, tx, inserts); err != nil {
		return fmt.Errorf("enqueue items of batch %s: %w", batchID, err)
	}
	return nil
}

func (s *Service) endProcessing(ctx context.Context, tx pgx.Tx, tenantID, batchID uuid.UUID) error {
	if err := s.q.BatchProcessingEnd(ctx, tx, queries.BatchProcessingEndParams{TenantID: tenantID, ID: batchID}); err != nil {
		return fmt.Errorf("end the processing of batch %s: %w", batchID, err)
	}
	if _, err := s.Jobs.InsertTx(ctx, tx, jobs.BatchPostProcessing{TenantID: tenantID, BatchID: batchID}, nil); err != nil {
		return fmt.Errorf("enqueue the post-processing of batch %s: %w", batchID, err)
	}
	return nil
}

func (s *Service) progressForUpdate(ctx context.Context, tx pgx.Tx, tenantID, batchID uuid.UUID) (progress, error) {
	row, err := s.q.BatchProgressGetForUpdate(ctx, tx, queries.BatchProgressGetForUpdateParams{TenantID: tenantID, ID: batchID})
	if err != nil {
		return progress{}, fmt.Errorf("get the progress of batch %s: %w", batchID, err)
	}
	return progressOf(row), nil
}

func progressOf(row queries.BatchProgressGetForUpdateRow) progress {
	return progress{
		status: Status(row.Status), isRetrying: row.RetryMode != nil, isCancelled: row.CancelRequestedAt != nil,
		fedUntil: row.FedUntil, chunksFedUntil: row.ChunksFedUntil, enqueued: row.ItemsEnqueued, total: row.ItemsTotal, completed: row.ItemsCompleted, failed: row.ItemsFailed,
	}
}
