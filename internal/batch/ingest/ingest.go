// Package ingest reads the sources of a batch, checks their items against the input schema
// and records them in chunks. It must not know HTTP or how items run.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/batch"
	"tranche/internal/catalog"
	"tranche/internal/itemfile"
	"tranche/internal/pipeline"
	"tranche/internal/postgres"
	"tranche/internal/storage"
	"tranche/internal/workflow"
	"tranche/queries"
)

// Config configures an Ingester.
type Config struct {
	Pool       *pgxpool.Pool
	Catalog    *catalog.Catalog
	Store      *storage.Store
	Dispatcher *batch.Dispatcher
	// Processors bounds how much of the work that needs a processor runs concurrently.
	Processors *batch.Processors
	// CountRefused counts items that do not match the input schema.
	CountRefused func(items int)
	Clock        func() time.Time
}

// Ingester records the items of batches.
type Ingester struct {
	Config
	q *queries.Queries
}

// New returns an Ingester.
func New(c Config) *Ingester { return &Ingester{Config: c, q: queries.New()} }

// PreProcess reads the sources of a batch and records its items in chunks. The progress is
// recorded with each chunk, so that after a crash PreProcess continues with the next one.
// Then it dispatches the first items. It leaves a batch alone that is past this stage,
// paused or at another attempt; attempt 0 matches any.
func (in *Ingester) PreProcess(ctx context.Context, key batch.Key, attempt int32) error {
	for {
		// Another worker recorded something meanwhile. It may be a worker that was considered
		// dead and whose commit arrived late, so this one continues after it.
		if err := in.preProcess(ctx, key, attempt); !errors.Is(err, batch.ErrOvertaken) {
			return postgres.Translate(err)
		}
	}
}

func (in *Ingester) preProcess(ctx context.Context, key batch.Key, attempt int32) error {
	row, err := in.q.BatchPreProcessingBegin(ctx, in.Pool, queries.BatchPreProcessingBeginParams{TenantID: key.TenantID, ID: key.ID, Attempt: attempt})
	if errors.Is(err, pgx.ErrNoRows) {
		return in.Dispatcher.Begin(ctx, key) // if the batch is validated and its processing has not begun
	}
	if err != nil {
		return fmt.Errorf("begin the pre-processing of batch %s: %w", key.ID, err)
	}
	w, plan, err := in.Catalog.Plan(ctx, key.TenantID, row.WorkflowID)
	if err != nil {
		return err
	}
	sources, err := in.sources(ctx, key, &row, w)
	if err != nil {
		return err
	}
	err = in.record(ctx, &recording{key: key, row: &row, workflow: w, plan: plan}, sources)
	if broken, ok := errors.AsType[*itemfile.Error](err); ok {
		return in.fail(ctx, key, row.Attempt, broken.Error())
	}
	if err != nil {
		return fmt.Errorf("record the items of batch %s: %w", key.ID, err)
	}
	if err := in.end(ctx, key, row.Attempt); err != nil {
		return err
	}
	return in.Dispatcher.Begin(ctx, key)
}

// recording is a batch whose items are being recorded.
type recording struct {
	key      batch.Key
	row      *queries.BatchPreProcessingBeginRow
	workflow *catalog.Workflow
	plan     *workflow.Plan
}

// record reads the sources in pages, checks several pages concurrently, and records their
// items in order.
func (in *Ingester) record(ctx context.Context, r *recording, sources []openSource) error {
	reader := &pageReader{next: r.row.ItemsRead}
	chunks := &chunker{
		plan: r.plan, clock: in.Clock, columns: itemfile.NewColumns(r.row.InputColumns...), next: r.row.ItemsRead,
		emit: func(chunk *queries.BatchItemsInsertParams) error { return in.insert(ctx, r, chunk) },
	}
	err := pipeline.Ordered(ctx, in.Processors.Count,
		func(yield func(page) error) error { return reader.readAll(sources, yield) },
		func(ctx context.Context, p page) (checkedPage, error) {
			release, err := in.Processors.Acquire(ctx, r.key)
			if err != nil {
				return checkedPage{}, err
			}
			defer release()
			return p.check(r.plan)
		},
		chunks.addAll)
	if err != nil {
		return err
	}
	return chunks.flush()
}

// insert records the items of a chunk and the progress of the batch.
func (in *Ingester) insert(ctx context.Context, r *recording, chunk *queries.BatchItemsInsertParams) error {
	chunk.TenantID, chunk.BatchID, chunk.Attempt, chunk.WorkflowType = r.key.TenantID, r.key.ID, r.row.Attempt, r.workflow.Type
	rows, err := in.q.BatchItemsInsert(ctx, in.Pool, *chunk)
	if err != nil {
		return fmt.Errorf("insert items from %d on: %w", chunk.FirstItem, err)
	}
	if rows == 0 {
		return batch.ErrOvertaken
	}
	in.CountRefused(int(chunk.Failed))
	return nil
}

// end records how many items are valid. A batch without valid items ends here.
func (in *Ingester) end(ctx context.Context, key batch.Key, attempt int32) error {
	return postgres.InTx(ctx, in.Pool, func(tx pgx.Tx) error {
		p, err := in.q.BatchProgressGetForUpdate(ctx, tx, queries.BatchProgressGetForUpdateParams{TenantID: key.TenantID, ID: key.ID})
		if err != nil {
			return fmt.Errorf("get the progress of batch %s: %w", key.ID, err)
		}
		status, result := batch.StatusPreProcessingComplete, batch.ResultValid
		switch {
		case p.ItemsTotal == 0:
			status, result = batch.StatusPreProcessingFailed, batch.ResultFailed+"the sources have no items"
		case p.ValidatedItems == 0:
			first, err := in.q.BatchItemFirstError(ctx, tx, queries.BatchItemFirstErrorParams{TenantID: key.TenantID, BatchID: key.ID})
			if err != nil {
				return fmt.Errorf("get the first item of batch %s: %w", key.ID, err)
			}
			status, result = batch.StatusPreProcessingFailed, batch.ResultFailed+"no item matches the input schema; the first: "+first
		case p.ValidatedItems < p.ItemsTotal:
			result = batch.ResultPartiallyValid
		}
		return in.setResult(ctx, tx, key, attempt, status, result)
	})
}

// FailPreProcessing ends a batch whose items cannot be recorded, and reports whether it did.
// It leaves a batch alone that is past this stage or at another attempt; attempt 0 matches
// any.
func (in *Ingester) FailPreProcessing(ctx context.Context, key batch.Key, attempt int32) (bool, error) {
	err := in.fail(ctx, key, attempt, "an unexpected error occurred")
	if errors.Is(err, batch.ErrOvertaken) {
		return false, nil
	}
	if err != nil {
		return false, postgres.Translate(fmt.Errorf("abandon batch %s: %w", key.ID, err))
	}
	return true, nil
}

// fail ends a batch whose items cannot be read or recorded. No item of it has run, and none
// is kept.
func (in *Ingester) fail(ctx context.Context, key batch.Key, attempt int32, reason string) error {
	return postgres.InTx(ctx, in.Pool, func(tx pgx.Tx) error {
		if err := in.setResult(ctx, tx, key, attempt, batch.StatusPreProcessingFailed, batch.ResultFailed+reason); err != nil {
			return err
		}
		if err := in.q.BatchItemsDelete(ctx, tx, queries.BatchItemsDeleteParams{TenantID: key.TenantID, BatchID: key.ID}); err != nil {
			return fmt.Errorf("delete the items of batch %s: %w", key.ID, err)
		}
		return nil
	})
}

func (in *Ingester) setResult(ctx context.Context, tx pgx.Tx, key batch.Key, attempt int32, status batch.Status, result string) error {
	rows, err := in.q.BatchPreProcessingEnd(ctx, tx, queries.BatchPreProcessingEndParams{
		TenantID: key.TenantID, ID: key.ID, Attempt: attempt, Status: string(status), Result: result,
	})
	if err != nil {
		return fmt.Errorf("end the pre-processing of batch %s: %w", key.ID, err)
	}
	if rows == 0 {
		return batch.ErrOvertaken
	}
	return nil
}
