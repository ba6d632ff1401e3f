package batch

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"tranche/internal/catalog"
	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/itemfile"
	"tranche/internal/limit"
	"tranche/internal/postgres"
	"tranche/internal/storage"
	"tranche/internal/workflow"
	"tranche/queries"
)

// The results of pre-processing (decisions 6.4).
const (
	resultValid          = "valid"
	resultPartiallyValid = "partially_valid"
	resultFailed         = "failed: "
)

// errOvertaken says that the batch was paused, cancelled or retried, or that
// another process is ahead with this stage.
var errOvertaken = errors.New("the stage is not this process' any more")

// openSource opens a source of items. Faults of a file are *itemfile.Error.
type openSource func() (itemfile.Reader, error)

// PreProcess reads the sources of a batch and records its items in chunks, each
// with its progress, so that after a crash it goes on with the next chunk. Then
// it feeds the first items to the workers. A batch that is past this stage, paused
// or at another attempt is left alone; attempt 0 is any.
func (s *Service) PreProcess(ctx context.Context, tenantID, batchID uuid.UUID, attempt int32) error {
	for {
		// Who is ahead may have been cut off while its commit was on its way, or be one
		// that was taken for dead and dies: this one goes on after it.
		if err := s.preProcess(ctx, tenantID, batchID, attempt); !errors.Is(err, errOvertaken) {
			return postgres.Translate(err)
		}
	}
}

func (s *Service) preProcess(ctx context.Context, tenantID, batchID uuid.UUID, attempt int32) error {
	row, err := s.q.BatchPreProcessingBegin(ctx, s.Pool, queries.BatchPreProcessingBeginParams{TenantID: tenantID, ID: batchID, Attempt: attempt})
	if errors.Is(err, pgx.ErrNoRows) {
		return s.process(ctx, tenantID, batchID)
	}
	if err != nil {
		return fmt.Errorf("begin with batch %s: %w", batchID, err)
	}
	w, plan, err := s.Catalog.Plan(ctx, tenantID, row.WorkflowID)
	if err != nil {
		return err
	}
	sources, err := s.sources(ctx, tenantID, &row, w)
	if err != nil {
		return err
	}
	err = s.record(ctx, tenantID, batchID, &row, w, plan, sources)
	if broken, ok := errors.AsType[*itemfile.Error](err); ok {
		return s.failPreProcessing(ctx, tenantID, batchID, row.Attempt, broken.Error())
	}
	if err != nil {
		return fmt.Errorf("record the items of batch %s: %w", batchID, err)
	}
	if err := s.endPreProcessing(ctx, tenantID, batchID, row.Attempt); err != nil {
		return err
	}
	return s.process(ctx, tenantID, batchID)
}

// record reads the sources, checks what was read before and writes what was
// checked before that, all at the same time. To check a portion is a turn.
func (s *Service) record(ctx context.Context, tenantID, batchID uuid.UUID, row *queries.BatchPreProcessingBeginRow, w *catalog.Workflow, plan *workflow.Plan, sources []openSource) error {
	chunks := make(chan *queries.BatchItemsInsertParams)
	group, ctx := errgroup.WithContext(ctx)
	goSafely(group, func() error {
		defer close(chunks)
		c := &chunker{plan: plan, clock: s.Clock, columns: newColumnSet(row.InputColumns...), next: row.ItemsRead}
		c.emit = func(chunk *queries.BatchItemsInsertParams) error {
			select {
			case chunks <- chunk:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		err := inOrder(ctx, portionsAhead, func(yield func(portion) error) error {
			p := &portioner{next: row.ItemsRead, yield: yield}
			return p.readAll(sources)
		}, func(ctx context.Context, p portion) (checkedPortion, error) {
			leave, err := s.turns.Acquire(ctx, limit.Request{TenantID: tenantID, BatchID: batchID})
			if err != nil {
				return checkedPortion{}, err
			}
			defer leave()
			return p.check(plan)
		}, c.addAll)
		if err != nil {
			return err
		}
		return c.flush()
	})
	goSafely(group, func() error {
		for chunk := range chunks {
			chunk.TenantID, chunk.BatchID, chunk.Attempt, chunk.WorkflowType = tenantID, batchID, row.Attempt, w.Type
			rows, err := s.q.BatchItemsInsert(ctx, s.Pool, *chunk)
			if err != nil {
				return fmt.Errorf("insert items from %d on: %w", chunk.FirstItem, err)
			}
			if rows == 0 {
				return errOvertaken
			}
			s.Executions.NoteEnded(engine.StatusFailed, int(chunk.Failed))
		}
		return nil
	})
	return group.Wait()
}

// endPreProcessing says what the items are worth; without a valid one the
// batch ends here.
func (s *Service) endPreProcessing(ctx context.Context, tenantID, batchID uuid.UUID, attempt int32) error {
	return postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		p, err := s.q.BatchProgressGetForUpdate(ctx, tx, queries.BatchProgressGetForUpdateParams{TenantID: tenantID, ID: batchID})
		if err != nil {
			return fmt.Errorf("get the progress of batch %s: %w", batchID, err)
		}
		status, result := StatusPreProcessingComplete, resultValid
		switch {
		case p.ItemsTotal == 0:
			status, result = StatusPreProcessingFailed, resultFailed+"the sources have no items"
		case p.ValidatedItems == 0:
			first, err := s.q.BatchItemFirstError(ctx, tx, queries.BatchItemFirstErrorParams{TenantID: tenantID, BatchID: batchID})
			if err != nil {
				return fmt.Errorf("get the first item of batch %s: %w", batchID, err)
			}
			status, result = StatusPreProcessingFailed, resultFailed+"no item matches the input schema; the first: "+first
		case p.ValidatedItems < p.ItemsTotal:
			result = resultPartiallyValid
		}
		return s.setPreProcessed(ctx, tx, tenantID, batchID, attempt, status, result)
	})
}

// failPreProcessing ends a batch whose items cannot be read or recorded. Nothing of
// it has run, and none of its items stays behind.
func (s *Service) failPreProcessing(ctx context.Context, tenantID, batchID uuid.UUID, attempt int32, reason string) error {
	return postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		if err := s.setPreProcessed(ctx, tx, tenantID, batchID, attempt, StatusPreProcessingFailed, resultFailed+reason); err != nil {
			return err
		}
		if err := s.q.BatchItemsDelete(ctx, tx, queries.BatchItemsDeleteParams{TenantID: tenantID, BatchID: batchID}); err != nil {
			return fmt.Errorf("delete the items of batch %s: %w", batchID, err)
		}
		return nil
	})
}

// FailPreProcessing gives up a batch whose items cannot be recorded, and reports
// whether it did: a batch in another status or at another attempt (0: any) is left
// alone.
func (s *Service) FailPreProcessing(ctx context.Context, tenantID, batchID uuid.UUID, attempt int32) (bool, error) {
	err := s.failPreProcessing(ctx, tenantID, batchID, attempt, "an unexpected error occurred")
	if errors.Is(err, errOvertaken) {
		return false, nil
	}
	if err != nil {
		return false, postgres.Translate(fmt.Errorf("give up batch %s: %w", batchID, err))
	}
	return true, nil
}

func (s *Service) setPreProcessed(ctx context.Context, tx pgx.Tx, tenantID, batchID uuid.UUID, attempt int32, status Status, result string) error {
	rows, err := s.q.BatchPreProcessingEnd(ctx, tx, queries.BatchPreProcessingEndParams{
		TenantID: tenantID, ID: batchID, Attempt: attempt, Status: string(status), Result: result,
	})
	if err != nil {
		return fmt.Errorf("end the pre-processing of batch %s: %w", batchID, err)
	}
	if rows == 0 {
		return errOvertaken
	}
	return nil
}

// sources lists the sources of a batch in their order (decisions 6.2): the
// request's items, its files, then the packages it names. Of an output package
// only the failed items are a source.
func (s *Service) sources(ctx context.Context, tenantID uuid.UUID, row *queries.BatchPreProcessingBeginRow, w *catalog.Workflow) ([]openSource, error) {
	schema, err := exactjson.Decode(w.InputSchema)
	if err != nil {
		return nil, fmt.Errorf("read the input schema: %w", err)
	}
	properties, _ := schema.(map[string]any)
	all := []openSource{func() (itemfile.Reader, error) { return openList(row.Items) }}
	packages := row.SourcePackageIds
	if row.RawPackageID != nil {
		packages = append([]uuid.UUID{*row.RawPackageID}, packages...)
	}
	for _, id := range packages {
		entries, err := s.Store.Package(ctx, tenantID, id)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if entry.Role == storage.RoleInput || entry.Role == storage.RoleFailed {
				all = append(all, s.fileSource(ctx, entry.Attachment, properties))
			}
		}
	}
	return all, nil
}

func (s *Service) fileSource(ctx context.Context, a storage.Attachment, schema map[string]any) openSource {
	return func() (itemfile.Reader, error) {
		file, err := s.Store.Open(ctx, a.TenantID, a.ID)
		if err != nil {
			return nil, err
		}
		return itemfile.Open(a.FileName, file, schema)
	}
}
