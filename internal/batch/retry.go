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

	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/jobs"
	"tranche/queries"
)

// RetryMode selects what a retry repeats (contract A.4.4, 6.9).
type RetryMode string

// The modes.
const (
	RetryPreProcessing       RetryMode = "pre_processing"
	RetryPostProcessing      RetryMode = "post_processing"
	RetryFailedItems         RetryMode = "failed_items"
	RetrySourceItems         RetryMode = "unsuccessful_sources_items"
	RetryFailedOrSourceItems RetryMode = "failed_and_unsuccessful_sources_items"
)

// failed reports whether the mode repeats failed and cancelled items.
func (m RetryMode) failed() bool { return m == RetryFailedItems || m == RetryFailedOrSourceItems }

// sourceFailed reports whether the mode repeats completed items with a failed source.
func (m RetryMode) sourceFailed() bool { return m == RetrySourceItems || m == RetryFailedOrSourceItems }

// from returns the statuses in which the mode is allowed.
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

// RetryRequest asks for another attempt of a batch.
type RetryRequest struct {
	TenantID uuid.UUID
	ID       uuid.UUID
	Mode     RetryMode
	// Sources replaces the sources and the custom input of the batch, if it is not nil. Only
	// RetryPreProcessing allows it.
	Sources *Request
	// Recorded is called in the transaction that accepts the retry, if it is not nil. Its
	// error undoes the transaction.
	Recorded func(ctx context.Context, tx pgx.Tx, r *Retried) error
}

// Retried is a retry that was accepted.
type Retried struct {
	Attempt      int
	ItemsToRetry int
	Status       Status
}

// Retry begins another attempt of a batch that has ended. The error is fault.NotFound for an
// unknown batch, file or package, fault.Conflict if the status of the batch does not allow
// the mode or no item matches it, and fault.Invalid for sources with another mode than
// pre_processing.
func (s *Service) Retry(ctx context.Context, r RetryRequest) (*Retried, error) {
	if r.Sources != nil && r.Mode != RetryPreProcessing {
		return nil, fault.New(fault.Invalid, "only the mode %s takes new inputs", RetryPreProcessing).
			WithDetails(fault.Detail{Field: "usePreviousInputs", Message: "must be true for this mode"})
	}
	var retried *Retried
	err := postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		var err error
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
		return nil, fault.New(fault.Conflict, "a batch of status %s cannot be retried by mode %s", row.Status, r.Mode)
	}
	if Status(row.Status) == StatusCancelled && strings.HasPrefix(row.PreProcessingResult, ResultFailed) {
		// A retry would complete the batch without the items that were not read.
		return nil, fault.New(fault.Conflict, "the batch was cancelled before all of its items were read; start a new batch instead")
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

// startOver deletes the items that were read, none of which has run, and stores the new
// sources if there are any.
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

// countToRetry counts the items that the mode runs again. It refuses a batch with items that
// are no longer kept, because its output would count them without containing them.
func (s *Service) countToRetry(ctx context.Context, tx pgx.Tx, r *RetryRequest, items int32) (int, error) {
	n, err := s.q.BatchItemsCount(ctx, tx, queries.BatchItemsCountParams{
		TenantID: r.TenantID, BatchID: r.ID, Failed: r.Mode.failed(), SourceFailed: r.Mode.sourceFailed(),
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("count the items of batch %s to retry: %w", r.ID, err)
	case n.Kept < items:
		return 0, fault.New(fault.Conflict, "executions of the batch are no longer kept, so it cannot be retried; its output package is still available")
	case n.ToRetry == 0 && r.Mode != RetryPostProcessing:
		return 0, fault.New(fault.Conflict, "no item of the batch matches the mode %s", r.Mode)
	default:
		return int(n.ToRetry), nil
	}
}
