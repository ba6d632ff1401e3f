package batch

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"tranche/internal/catalog"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/jobs"
	"tranche/queries"
)

// Items are dispatched in windows: a window of a batch's items is enqueued, and the next
// items follow when half of the window has ended. River's queue is first in, first out, so
// the windows of several batches and tenants alternate. A new batch waits for one window
// of each other batch. The first hundred items of a batch do not wait at all
// (jobs.BatchItemRun).
const (
	// rangeItems is how many recorded items without effects one job runs.
	rangeItems = ChunkItemsMax
	// The windows, in items: without effects, with effects, and of workflows that wait.
	// An item that waits may do so for hours and occupies only its row, so it must not keep
	// other items from beginning.
	windowPure    = 8 * rangeItems
	windowEffects = 12 * ChunkItemsEffectsMax
	windowWaits   = 20_000
)

// Dispatcher enqueues the items of batches, and the last stage of a batch when all of its
// items have ended.
type Dispatcher struct {
	pool    *pgxpool.Pool
	jobs    *jobs.Client
	catalog *catalog.Catalog
	q       *queries.Queries
}

// NewDispatcher returns a Dispatcher.
func NewDispatcher(pool *pgxpool.Pool, client *jobs.Client, plans *catalog.Catalog) *Dispatcher {
	return &Dispatcher{pool: pool, jobs: client, catalog: plans, q: queries.New()}
}

// Progress is how far the processing of a batch is.
type Progress struct {
	status      Status
	isRetrying  bool  // items are being prepared for a retry
	isCancelled bool  // no more items may begin
	fedUntil    int32 // pending items below this index were enqueued
	// chunksFedUntil is the same for items that wait in chunks.
	chunksFedUntil int32
	enqueued       int32 // how many enqueued items have not ended
	total          int32
	completed      int32
	failed         int32
}

// ProgressOf returns the progress that a row shows.
func ProgressOf(row queries.BatchProgressGetForUpdateRow) Progress {
	return Progress{
		status: Status(row.Status), isRetrying: row.RetryMode != nil, isCancelled: row.CancelRequestedAt != nil,
		fedUntil: row.FedUntil, chunksFedUntil: row.ChunksFedUntil, enqueued: row.ItemsEnqueued,
		total: row.ItemsTotal, completed: row.ItemsCompleted, failed: row.ItemsFailed,
	}
}

// IsProcessed reports whether all items have ended, or the batch is not being processed.
func (p Progress) IsProcessed() bool {
	return p.status != StatusProcessing || p.completed+p.failed == p.total
}

// IsDue reports whether Dispatch has something to do.
func (p Progress) IsDue(plan *workflow.Plan) bool {
	more, isProcessed := p.next(windowOf(plan))
	return more > 0 || isProcessed
}

// next returns how many more items to enqueue, and whether the processing is over.
func (p Progress) next(window int32) (more int32, isProcessed bool) {
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

// windowOf returns how many items of a plan are enqueued at a time.
func windowOf(plan *workflow.Plan) int32 {
	switch {
	case plan.Waits():
		return windowWaits
	case plan.Effects:
		return windowEffects
	default:
		return windowPure
	}
}

// Begin begins the processing of a batch whose items were read. It leaves batches in other
// statuses alone.
func (d *Dispatcher) Begin(ctx context.Context, key Key) error {
	batch, err := d.q.BatchGetForItems(ctx, d.pool, queries.BatchGetForItemsParams{TenantID: key.TenantID, ID: key.ID})
	if err != nil {
		return fmt.Errorf("get batch %s: %w", key.ID, err)
	}
	_, plan, err := d.catalog.Plan(ctx, key.TenantID, batch.WorkflowID)
	if err != nil {
		return err
	}
	return postgres.InTx(ctx, d.pool, func(tx pgx.Tx) error {
		p, err := d.progressForUpdate(ctx, tx, key)
		if err != nil || p.status != StatusPreProcessingComplete {
			return err
		}
		p.status = StatusProcessing
		return d.DispatchTx(ctx, tx, key, plan, p)
	})
}

// Advance dispatches the items of a batch, or its last stage, if that is due. It returns
// the progress before.
func (d *Dispatcher) Advance(ctx context.Context, key Key, plan *workflow.Plan) (Progress, error) {
	var p Progress
	err := postgres.InTx(ctx, d.pool, func(tx pgx.Tx) error {
		var err error
		if p, err = d.progressForUpdate(ctx, tx, key); err != nil {
			return err
		}
		return d.DispatchTx(ctx, tx, key, plan, p)
	})
	return p, err
}

func (d *Dispatcher) progressForUpdate(ctx context.Context, tx pgx.Tx, key Key) (Progress, error) {
	row, err := d.q.BatchProgressGetForUpdate(ctx, tx, queries.BatchProgressGetForUpdateParams{TenantID: key.TenantID, ID: key.ID})
	if err != nil {
		return Progress{}, fmt.Errorf("get the progress of batch %s: %w", key.ID, err)
	}
	return ProgressOf(row), nil
}

// DispatchTx enqueues the next items of a batch if that is due, and the last stage when no
// item is pending. The transaction holds the lock of the batch's row, so that each happens
// once.
func (d *Dispatcher) DispatchTx(ctx context.Context, tx pgx.Tx, key Key, plan *workflow.Plan, p Progress) error {
	for {
		more, isProcessed := p.next(windowOf(plan))
		if isProcessed {
			return d.endProcessing(ctx, tx, key)
		}
		if more == 0 {
			return nil
		}
		enqueue := d.enqueueItems
		if p.chunksFedUntil < p.total {
			enqueue = d.enqueueChunks
		}
		n, err := enqueue(ctx, tx, key, plan, &p, more)
		if err != nil {
			return err
		}
		err = d.q.BatchSetDispatched(ctx, tx, queries.BatchSetDispatchedParams{
			TenantID: key.TenantID, ID: key.ID, FedUntil: p.fedUntil, ChunksFedUntil: p.chunksFedUntil, Fed: n,
		})
		if err != nil {
			return fmt.Errorf("dispatch items of batch %s: %w", key.ID, err)
		}
		p.enqueued += n
	}
}

// enqueueChunks enqueues about so many items that wait in chunks, and returns how many.
func (d *Dispatcher) enqueueChunks(ctx context.Context, tx pgx.Tx, key Key, plan *workflow.Plan, p *Progress, more int32) (int32, error) {
	items := int32(ChunkItems(plan))
	chunksMax := (more + items - 1) / items
	chunks, err := d.q.BatchChunksList(ctx, tx, queries.BatchChunksListParams{
		TenantID: key.TenantID, BatchID: key.ID, FirstItem: p.chunksFedUntil, ChunksMax: chunksMax,
	})
	if err != nil {
		return 0, fmt.Errorf("list the chunks of batch %s: %w", key.ID, err)
	}
	p.chunksFedUntil = p.total
	if len(chunks) == int(chunksMax) {
		p.chunksFedUntil = chunks[len(chunks)-1].EndItem
	}
	var enqueued int32
	runs := make([]jobs.BatchItemRun, len(chunks))
	for i, c := range chunks {
		enqueued += c.Items
		runs[i] = jobs.BatchItemRun{TenantID: key.TenantID, BatchID: key.ID, FirstItem: c.FirstItem, EndItem: c.EndItem, IsChunk: true}
	}
	return enqueued, d.EnqueueTx(ctx, tx, runs)
}

// enqueueItems enqueues so many items that are recorded as pending, and returns how many.
func (d *Dispatcher) enqueueItems(ctx context.Context, tx pgx.Tx, key Key, plan *workflow.Plan, p *Progress, more int32) (int32, error) {
	items, err := d.q.BatchItemsListPending(ctx, tx, queries.BatchItemsListPendingParams{
		TenantID: key.TenantID, BatchID: key.ID, FirstItem: p.fedUntil, ItemsMax: more,
	})
	if err != nil {
		return 0, fmt.Errorf("list the items of batch %s: %w", key.ID, err)
	}
	p.fedUntil = p.total
	if len(items) == int(more) {
		p.fedUntil = items[len(items)-1] + 1
	}
	perJob := rangeItems
	if plan.Effects {
		perJob = 1
	}
	return int32(len(items)), d.EnqueueTx(ctx, tx, Runs(key, items, perJob))
}

// Runs returns the jobs that run the items, perJob of them each.
func Runs(key Key, items []int32, perJob int) []jobs.BatchItemRun {
	var runs []jobs.BatchItemRun
	for first := 0; first < len(items); first += perJob {
		last := min(first+perJob, len(items)) - 1
		runs = append(runs, jobs.BatchItemRun{TenantID: key.TenantID, BatchID: key.ID, FirstItem: items[first], EndItem: items[last] + 1})
	}
	return runs
}

// EnqueueTx enqueues jobs of items.
func (d *Dispatcher) EnqueueTx(ctx context.Context, tx pgx.Tx, runs []jobs.BatchItemRun) error {
	if len(runs) == 0 {
		return nil
	}
	inserts := make([]river.InsertManyParams, len(runs))
	for i, run := range runs {
		inserts[i].Args = run
	}
	if _, err := d.jobs.InsertManyTx(ctx, tx, inserts); err != nil {
		return fmt.Errorf("enqueue items of batch %s: %w", runs[0].BatchID, err)
	}
	return nil
}

func (d *Dispatcher) endProcessing(ctx context.Context, tx pgx.Tx, key Key) error {
	if err := d.q.BatchProcessingEnd(ctx, tx, queries.BatchProcessingEndParams{TenantID: key.TenantID, ID: key.ID}); err != nil {
		return fmt.Errorf("end the processing of batch %s: %w", key.ID, err)
	}
	if _, err := d.jobs.InsertTx(ctx, tx, jobs.BatchPostProcessing{TenantID: key.TenantID, BatchID: key.ID}, nil); err != nil {
		return fmt.Errorf("enqueue the post-processing of batch %s: %w", key.ID, err)
	}
	return nil
}
