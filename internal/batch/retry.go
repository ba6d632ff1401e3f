package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"tranche/internal/engine"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/jobs"
	"tranche/queries"
)

// RetryMode says what of a batch is repeated (section 4.4 of the interface
// specification, decisions 6.9).
type RetryMode string

// The modes.
const (
	RetryPreProcessing       RetryMode = "pre_processing"
	RetryPostProcessing      RetryMode = "post_processing"
	RetryFailedItems         RetryMode = "failed_items"
	RetrySourceItems         RetryMode = "unsuccessful_sources_items"
	RetryFailedOrSourceItems RetryMode = "failed_and_unsuccessful_sources_items"
)

// failed reports whether the mode takes failed and cancelled items.
func (m RetryMode) failed() bool { return m == RetryFailedItems || m == RetryFailedOrSourceItems }

// sourceFailed reports whether it takes completed items whose source failed.
func (m RetryMode) sourceFailed() bool { return m == RetrySourceItems || m == RetryFailedOrSourceItems }

// from are the statuses in which a batch can be retried by the mode.
func (m RetryMode) from() []Status {
	switch m {
	case RetryPreProcessing:
		return []Status{StatusPreProcessingFailed}
	case RetryPostProcessing:
		return []Status{StatusComplete, StatusPostProcessingFailed}
	default:
		return []Status{StatusComplete, StatusCancelled, StatusPostProcessingFailed}
	}
}

// retryChunkItems is how many items one transaction makes ready; fewer where their
// states, which go through it, are large.
const retryChunkItems = 500

// RetryRequest asks for another attempt of a batch.
type RetryRequest struct {
	TenantID uuid.UUID
	ID       uuid.UUID
	Mode     RetryMode
	// Sources, unless nil, replace the batch's; only its sources and its custom
	// input are looked at. Only for RetryPreProcessing.
	Sources *Request
	// Recorded, unless nil, joins the transaction that accepts the retry. Its
	// error undoes it.
	Recorded func(ctx context.Context, tx pgx.Tx, r *Retried) error
}

// Retried is a retry that was accepted.
type Retried struct {
	Attempt      int
	ItemsToRetry int
	Status       Status
}

// Retry begins another attempt of a batch that has ended: its status is left in
// the transaction that accepts it. fault.NotFound if there is no such batch,
// file or package; fault.Conflict where its status forbids the mode or no item
// matches it; fault.Invalid for sources with another mode than pre_processing.
func (s *Service) Retry(ctx context.Context, r RetryRequest) (retried *Retried, err error) {
	if r.Sources != nil && r.Mode != RetryPreProcessing {
		return nil, fault.New(fault.Invalid, "only the mode %s takes new inputs", RetryPreProcessing).
			WithDetails(fault.Detail{Field: "usePreviousInputs", Message: "must be true for this mode"})
	}
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		if retried, err = s.retryTx(ctx, tx, &r); err != nil || r.Recorded == nil {
			return err
		}
		return r.Recorded(ctx, tx, retried)
	})
	return retried, err
}

func (s *Service) retryTx(ctx context.Context, tx pgx.Tx, r *RetryRequest) (*Retried, error) {
	row, err := s.q.BatchGetForUpdate(ctx, tx, queries.BatchGetForUpdateParams{TenantID: r.TenantID, ID: r.ID})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fault.New(fault.NotFound, "there is no such batch")
	}
	if err != nil {
		return nil, fmt.Errorf("get batch %s: %w", r.ID, err)
	}
	if !slices.Contains(r.Mode.from(), Status(row.Status)) {
		return nil, fault.New(fault.Conflict, "a batch of status %s can not be retried by mode %s", row.Status, r.Mode)
	}
	if Status(row.Status) == StatusCancelled && strings.HasPrefix(row.PreProcessingResult, resultFailed) {
		// It would call itself complete without the items that were not read.
		return nil, fault.New(fault.Conflict, "the batch was cancelled before all of its items were read, so it can not be retried: start it anew")
	}
	attempt := row.Attempt + 1
	retried := &Retried{Attempt: int(attempt), Status: StatusProcessing}
	var job river.JobArgs = jobs.BatchItemRetry{TenantID: r.TenantID, BatchID: r.ID}
	params := queries.BatchRetryParams{TenantID: r.TenantID, ID: r.ID}
	switch r.Mode {
	case RetryPreProcessing:
		retried.Status, job = StatusPending, jobs.BatchPreProcessing{TenantID: r.TenantID, BatchID: r.ID, Attempt: attempt}
		err = s.startOver(ctx, tx, r)
	case RetryPostProcessing:
		retried.Status, job = StatusPostProcessing, jobs.BatchPostProcessing{TenantID: r.TenantID, BatchID: r.ID}
		_, err = s.countToRetry(ctx, tx, r, row.ItemsTotal)
	default:
		params.RetryMode, params.IsUncancelled = queries.Optional(string(r.Mode)), true
		retried.ItemsToRetry, err = s.countToRetry(ctx, tx, r, row.ItemsTotal)
	}
	if err != nil {
		return nil, err
	}
	params.Status = string(retried.Status)
	if err := s.q.BatchRetry(ctx, tx, params); err != nil {
		return nil, fmt.Errorf("retry batch %s: %w", r.ID, err)
	}
	if _, err := s.Jobs.InsertTx(ctx, tx, job, nil); err != nil {
		return nil, fmt.Errorf("enqueue the retry of batch %s: %w", r.ID, err)
	}
	return retried, nil
}

// startOver forgets the items that were read, none of which has run, and takes
// the new sources if there are any.
func (s *Service) startOver(ctx context.Context, tx pgx.Tx, r *RetryRequest) error {
	if err := s.q.BatchItemsDelete(ctx, tx, queries.BatchItemsDeleteParams{TenantID: r.TenantID, BatchID: r.ID}); err != nil {
		return fmt.Errorf("delete the items of batch %s: %w", r.ID, err)
	}
	if err := s.q.BatchPreProcessingReset(ctx, tx, queries.BatchPreProcessingResetParams{TenantID: r.TenantID, ID: r.ID}); err != nil {
		return fmt.Errorf("reset the pre-processing of batch %s: %w", r.ID, err)
	}
	if r.Sources == nil {
		return nil
	}
	sources := queries.BatchSourcesReplaceParams{TenantID: r.TenantID, ID: r.ID}
	var err error
	if sources.Items, sources.CustomInput, err = inputs(r.Sources); err != nil {
		return err
	}
	if sources.SourcePackageIds, err = s.findPackages(ctx, tx, r.Sources); err != nil {
		return err
	}
	if sources.RawPackageID, err = s.packFiles(ctx, tx, r.Sources); err != nil {
		return err
	}
	if err := s.q.BatchSourcesReplace(ctx, tx, sources); err != nil {
		return fmt.Errorf("replace the sources of batch %s: %w", r.ID, err)
	}
	return nil
}

// countToRetry counts the items that the mode runs again. It refuses a batch of which
// fewer than its items are kept: its output would have some of them and count all.
func (s *Service) countToRetry(ctx context.Context, tx pgx.Tx, r *RetryRequest, items int32) (int, error) {
	n, err := s.q.BatchItemsCount(ctx, tx, queries.BatchItemsCountParams{
		TenantID: r.TenantID, BatchID: r.ID, Failed: r.Mode.failed(), SourceFailed: r.Mode.sourceFailed(),
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("count the items of batch %s to retry: %w", r.ID, err)
	case n.Kept < items:
		return 0, fault.New(fault.Conflict, "executions of the batch are not kept any more, so it can not be retried; its output package is")
	case n.ToRetry == 0 && r.Mode != RetryPostProcessing:
		return 0, fault.New(fault.Conflict, "no item of the batch matches the mode %s", r.Mode)
	default:
		return int(n.ToRetry), nil
	}
}

// RetryItems makes the items of a retry ready in chunks, each with its progress,
// so that after a crash it goes on with the next chunk, and feeds them. A batch
// that is paused, cancelled or past this is left alone.
func (s *Service) RetryItems(ctx context.Context, tenantID, batchID uuid.UUID) error {
	for {
		row, err := s.q.BatchRetryGet(ctx, s.Pool, queries.BatchRetryGetParams{TenantID: tenantID, ID: batchID})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return postgres.Translate(fmt.Errorf("get the retry of batch %s: %w", batchID, err))
		}
		_, plan, err := s.Catalog.Plan(ctx, tenantID, row.WorkflowID)
		if err != nil {
			return err
		}
		r := &retrying{
			tenantID: tenantID, batchID: batchID, attempt: row.Attempt, plan: plan, mode: RetryMode(row.RetryMode),
			withStates: plan.Effects || len(plan.References) > 0,
		}
		sizes, err := s.q.BatchItemsListRetrySizes(ctx, s.Pool, queries.BatchItemsListRetrySizesParams{
			TenantID: tenantID, BatchID: batchID, FirstItem: row.RetryFrom, ItemsMax: retryChunkItems,
			Failed: r.mode.failed(), SourceFailed: r.mode.sourceFailed(), WithStates: r.withStates,
		})
		if err != nil {
			return postgres.Translate(fmt.Errorf("find the items of batch %s to retry: %w", batchID, err))
		}
		if len(sizes) == 0 {
			return s.endRetry(ctx, r)
		}
		for from := row.RetryFrom; len(sizes) > 0; {
			n := fitting(len(sizes), func(i int) int { return int(sizes[i].StateBytes) })
			next := sizes[n-1].ItemIndex + 1
			isRetried, err := s.retryChunk(ctx, r, from, next)
			if err != nil {
				return err
			}
			if !isRetried {
				break // what the batch is now tells how it goes on
			}
			from, sizes = next, sizes[n:]
		}
	}
}

// retrying is a retry whose items are made ready.
type retrying struct {
	tenantID, batchID uuid.UUID
	attempt           int32 // of the batch, which it is for
	plan              *workflow.Plan
	mode              RetryMode
	withStates        bool // items may go on from what they have; without effects all begin anew
}

// retryChunk makes the items of a range ready; false if the batch was paused,
// cancelled or retried, or another process was first.
func (s *Service) retryChunk(ctx context.Context, r *retrying, from, next int32) (isRetried bool, err error) {
	items, err := s.q.BatchItemsListRetryable(ctx, s.Pool, queries.BatchItemsListRetryableParams{
		TenantID: r.tenantID, BatchID: r.batchID, FirstItem: from, EndItem: next,
		Failed: r.mode.failed(), SourceFailed: r.mode.sourceFailed(), WithStates: r.withStates,
	})
	if err != nil {
		return false, postgres.Translate(fmt.Errorf("list the items of batch %s to retry: %w", r.batchID, err))
	}
	p := queries.BatchItemsRetryParams{
		TenantID: r.tenantID, BatchID: r.batchID, Attempt: r.attempt, FirstItem: from, NextItem: next,
		RefusedIds: []uuid.UUID{}, Ids: []uuid.UUID{}, States: []string{}, TasksCompleted: []int32{}, // nil would be NULL
	}
	for i := range items {
		it := &items[i]
		if it.IsRefused {
			p.RefusedIds = append(p.RefusedIds, it.ID) // neither it nor the schema has changed
			continue
		}
		state, completed, err := s.again(ctx, r.tenantID, r.plan, it)
		if err != nil {
			return false, err
		}
		if engine.Status(it.Status) == engine.StatusCompleted {
			p.Completed++
		} else {
			p.Failed++
		}
		p.Ids, p.States, p.TasksCompleted = append(p.Ids, it.ID), append(p.States, state), append(p.TasksCompleted, completed)
	}
	batches, err := s.q.BatchItemsRetry(ctx, s.Pool, p)
	if err != nil {
		return false, postgres.Translate(fmt.Errorf("make items of batch %s ready: %w", r.batchID, err))
	}
	if batches > 0 {
		s.Executions.NoteEnded(engine.StatusFailed, len(p.RefusedIds))
	}
	return batches > 0, nil
}

// again is the state with which an item begins another attempt, empty where it
// begins anew, and how many tasks of it keep their results.
func (s *Service) again(ctx context.Context, tenantID uuid.UUID, plan *workflow.Plan, it *queries.BatchItemsListRetryableRow) (text string, completed int32, err error) {
	if it.State == nil {
		return "", 0, nil
	}
	plan, state, err := s.Executions.Stored(ctx, tenantID, it.ID, plan, it.State)
	if err != nil || !plan.Effects {
		return "", 0, err
	}
	state.Attempt = int(it.Attempt)
	if engine.Status(it.Status) == engine.StatusCompleted {
		engine.ResetSources(plan, state)
	} else if _, _, err := engine.Reset(plan, state, nil); err != nil {
		return "", 0, err
	}
	for _, task := range state.Tasks {
		if task.Status == engine.StatusCompleted {
			completed++
		}
	}
	encoded, err := state.JSON()
	if err != nil {
		return "", 0, fmt.Errorf("write the state of execution %s: %w", it.ID, err)
	}
	return string(encoded), completed, nil
}

// endRetry lets the items run.
func (s *Service) endRetry(ctx context.Context, r *retrying) error {
	return postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		row, err := s.q.BatchRetryEnd(ctx, tx, queries.BatchRetryEndParams{TenantID: r.tenantID, ID: r.batchID, Attempt: r.attempt})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("begin the retry of batch %s: %w", r.batchID, err)
		}
		return s.feed(ctx, tx, r.tenantID, r.batchID, r.plan, progressOf(queries.BatchProgressGetForUpdateRow(row)))
	})
}
