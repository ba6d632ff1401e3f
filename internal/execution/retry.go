package execution

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/internal/idempotency"
	"tranche/internal/postgres"
	"tranche/jobs"
	"tranche/queries"
)

// RetryRequest asks for another attempt of an execution.
type RetryRequest struct {
	TenantID uuid.UUID
	ID       uuid.UUID
	// SkipTasks are the tasks that the new attempt does not run again.
	SkipTasks []string
	// Recorded, unless nil, joins the transaction that accepts the retry. An error of
	// Recorded rolls the transaction back.
	Recorded func(ctx context.Context, tx pgx.Tx, r *Retried) error
}

// Retried is a retry that was accepted.
type Retried struct {
	Attempt int
	// Skipped tasks do not run again; Resumed tasks may.
	Skipped, Resumed []string
	AcceptedAt       time.Time
}

// Retry starts another attempt of a failed, cancelled or timed-out execution (contract
// 5.7): the execution is pending again and gets a job. Errors: fault.NotFound;
// fault.Invalid if its status forbids the retry or a task to skip is unknown.
func (s *Service) Retry(ctx context.Context, r RetryRequest) (*Retried, error) {
	plan, err := s.plan(ctx, r.TenantID, r.ID)
	if err != nil {
		return nil, err
	}
	var retried *Retried
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		row, err := getForUpdate(ctx, tx, r.TenantID, r.ID)
		if err != nil {
			return err
		}
		if retryable, reason := Retryable(engine.Status(row.Status), row.BatchID != nil); !retryable {
			return errStatus(reason)
		}
		plan, state, err := s.Stored(ctx, r.TenantID, r.ID, plan, row.State)
		if err != nil {
			return err
		}
		state.Attempt = int(row.Attempt)
		tags := beforeEnd(row.Tags, state.EndTags())
		retried = &Retried{AcceptedAt: s.Clock()}
		if retried.Skipped, retried.Resumed, err = engine.Reset(plan, state, r.SkipTasks); err != nil {
			return err
		}
		retried.Attempt = state.Attempt
		if err := s.storeRetry(ctx, tx, &r, state, tags); err != nil || r.Recorded == nil {
			return err
		}
		return r.Recorded(ctx, tx, retried)
	})
	return retried, err
}

// storeRetry stores the state of the next attempt and its job. A caller that repeats an
// earlier idempotency key still gets the earlier result.
func (s *Service) storeRetry(ctx context.Context, tx pgx.Tx, r *RetryRequest, state *engine.State, tags []string) error {
	text, err := state.JSON()
	if err != nil {
		return fmt.Errorf("write the state of execution %s: %w", r.ID, err)
	}
	if err := idempotency.FreezeTx(ctx, tx, r.TenantID, r.ID); err != nil {
		return err
	}
	completed, _ := countTasks(state)
	err = queries.New().ExecutionRetry(ctx, tx, queries.ExecutionRetryParams{
		TenantID: r.TenantID, ID: r.ID, Attempt: int32(state.Attempt), TasksCompleted: completed, State: text, Tags: tags,
	})
	if err != nil {
		return fmt.Errorf("retry execution %s: %w", r.ID, err)
	}
	_, err = s.Jobs.InsertTx(ctx, tx, jobs.TaskExecution{TenantID: r.TenantID, ExecutionID: r.ID}, nil)
	return err
}

// beforeEnd returns an execution's tags without those of its end task, which come last.
// Another attempt may end at another task.
func beforeEnd(tags, ends []string) []string {
	for len(tags) > 0 && slices.Contains(ends, tags[len(tags)-1]) {
		tags = tags[:len(tags)-1]
	}
	return tags
}

// Retryable reports whether an execution of the given status can be retried, and why or
// why not (contract 5.6 and 5.7). An item is retried with its batch.
func Retryable(status engine.Status, isItem bool) (retryable bool, reason string) {
	switch {
	case isItem:
		return false, "the execution is an item of a batch: retry the batch"
	case status == engine.StatusFailed:
		return true, "the execution failed"
	case status == engine.StatusCancelled:
		return true, "the execution was cancelled"
	case status == engine.StatusTimeout:
		return true, "the execution exceeded its time limit"
	default:
		return false, fmt.Sprintf("only a failed, cancelled or timed-out execution can be retried; this one is %s", status)
	}
}
