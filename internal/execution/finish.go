package execution

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"tranche/queries"
)

func (f *Finished) tenant() uuid.UUID { return f.TenantID }

func (f *Finished) bytes() int { return len(f.State) + len(f.ResultText) }

// finishAll writes the ends of recorded executions in one statement. It returns 1 for
// each, or 0 where another was faster or has taken it over.
func finishAll(ctx context.Context, db queries.DBTX, ends []*Finished) ([]int64, error) {
	if len(ends) == 1 {
		rows, err := ends[0].write(ctx, db)
		return []int64{rows}, err
	}
	var params queries.SysExecutionFinishParams
	for _, f := range ends {
		if err := f.addTo(&params); err != nil {
			return nil, err
		}
	}
	ended, err := queries.New().SysExecutionFinish(ctx, db, params)
	if err != nil {
		return nil, fmt.Errorf("end %d executions: %w", len(ends), err)
	}
	rows := make(map[queries.SysExecutionFinishRow]int64, len(ended))
	for _, row := range ended {
		rows[row] = 1
	}
	results := make([]int64, len(ends))
	for i, f := range ends {
		results[i] = rows[queries.SysExecutionFinishRow{ExecutionID: f.ID, LeaseToken: f.LeaseToken}]
	}
	return results, nil
}

// write writes the end of one recorded execution.
func (f *Finished) write(ctx context.Context, db queries.DBTX) (rows int64, err error) {
	rows, err = queries.New().ExecutionFinish(ctx, queries.OnPartition(db, f.ID), queries.ExecutionFinishParams{
		TenantID: f.TenantID, ID: f.ID, Attempt: int32(f.Attempt), LeaseToken: f.LeaseToken, Status: string(f.Outcome.Status),
		SourceFailed: f.Outcome.SourceFailed, StatusCode: int32(f.Outcome.StatusCode),
		TasksCompleted: int32(f.Outcome.TasksCompleted), TasksFailed: int32(f.Outcome.TasksFailed),
		StartedAt: f.StartedAt, DeadlineAt: f.DeadlineAt, CompletedAt: f.At,
		Tags: orEmpty(f.Tags), State: f.State, Result: f.ResultText,
	})
	if err != nil {
		return 0, fmt.Errorf("end an execution: %w", err)
	}
	return rows, nil
}

// addTo appends the end's values to those of others.
func (f *Finished) addTo(p *queries.SysExecutionFinishParams) error {
	tags, err := json.Marshal(orEmpty(f.Tags))
	if err != nil {
		return fmt.Errorf("write the tags of execution %s: %w", f.ID, err)
	}
	p.Ids = append(p.Ids, f.ID)
	p.TenantIds = append(p.TenantIds, f.TenantID)
	p.Attempts = append(p.Attempts, int32(f.Attempt))
	p.LeaseTokens = append(p.LeaseTokens, f.LeaseToken)
	p.Statuses = append(p.Statuses, string(f.Outcome.Status))
	p.SourceFailed = append(p.SourceFailed, f.Outcome.SourceFailed)
	p.StatusCodes = append(p.StatusCodes, int32(f.Outcome.StatusCode))
	p.TasksCompleted = append(p.TasksCompleted, int32(f.Outcome.TasksCompleted))
	p.TasksFailed = append(p.TasksFailed, int32(f.Outcome.TasksFailed))
	p.StartedAt = append(p.StartedAt, f.StartedAt)
	p.DeadlinesAt = append(p.DeadlinesAt, f.DeadlineAt)
	p.CompletedAt = append(p.CompletedAt, f.At)
	p.Tags = append(p.Tags, string(tags))
	p.States = append(p.States, string(f.State))
	p.Results = append(p.Results, string(f.ResultText))
	return nil
}
