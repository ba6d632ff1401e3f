package execution

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/queries"
)

// finish is the end of an execution that is recorded, and the waiting job that
// it makes needless, if any.
type finish struct {
	*Finished
	jobID *int64
}

func (f finish) tenant() uuid.UUID { return f.TenantID }

func (f finish) bytes() int { return len(f.State) + len(f.ResultText) }

// finishAll writes the ends of executions in one flight and one commit. It
// returns 1 for each, or 0 where another was faster or has taken it over.
func finishAll(ctx context.Context, db queries.DBTX, ends []finish) ([]int64, error) {
	params := make([]queries.ExecutionFinishParams, len(ends))
	for i, f := range ends {
		params[i] = queries.ExecutionFinishParams{
			TenantID: f.TenantID, ID: f.ID, Attempt: int32(f.Attempt), LeaseToken: f.LeaseToken, JobID: f.jobID,
			Status: string(f.Outcome.Status), IsSuccess: f.Outcome.Status == engine.StatusCompleted,
			SourceFailed: f.Outcome.SourceFailed, StatusCode: int32(f.Outcome.StatusCode),
			TasksCompleted: int32(f.Outcome.TasksCompleted), TasksFailed: int32(f.Outcome.TasksFailed),
			StartedAt: f.StartedAt, DeadlineAt: f.DeadlineAt, CompletedAt: f.At,
			Tags: orEmpty(f.Tags), State: f.State, Result: f.ResultText,
		}
	}
	rows := make([]int64, len(ends))
	var failed error
	queries.New().ExecutionFinish(ctx, db, params).QueryRow(func(i int, _ uuid.UUID, err error) {
		switch {
		case err == nil:
			rows[i] = 1
		case !errors.Is(err, pgx.ErrNoRows) && failed == nil:
			failed = fmt.Errorf("end execution %s: %w", ends[i].ID, err)
		}
	})
	return rows, failed
}
