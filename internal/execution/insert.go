package execution

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/postgres"
	"tranche/jobs"
	"tranche/queries"
)

// newExecution is an execution that is about to be recorded. Members that are
// zero are null in the database.
type newExecution struct {
	ID          uuid.UUID
	TenantID    uuid.UUID
	WorkflowID  uuid.UUID
	PrincipalID string
	BillableID  string
	BorrowerID  string
	Tags        []string
	IsTest      bool
	RescoreOf   uuid.UUID
	Status      engine.Status
	Input       []byte // JSON, as are State and Result
	State       []byte

	// of one that has begun
	StartedAt  time.Time
	DeadlineAt time.Time
	// of one that is driven by this process
	LeaseToken     uuid.UUID
	LeaseProcessID uuid.UUID
	// of one that has ended
	SourceFailed   bool
	StatusCode     int
	TasksCompleted int
	TasksFailed    int
	CompletedAt    time.Time
	Result         []byte

	// HasJob says that a job goes on with it.
	HasJob bool
}

func (e *newExecution) tenant() uuid.UUID { return e.TenantID }

func (e *newExecution) bytes() int { return len(e.Input) + len(e.State) + len(e.Result) }

// insertAll records executions in one statement, those whose workflow is active:
// it returns which.
func insertAll(ctx context.Context, db queries.DBTX, executions []*newExecution) ([]bool, error) {
	if len(executions) == 1 && !executions[0].HasJob {
		isInserted, err := executions[0].insert(ctx, db)
		return []bool{isInserted}, err
	}
	params := queries.SysExecutionInsertParams{
		JobKind: jobs.TaskExecution{}.Kind(), JobQueue: jobs.QueueExecution, JobAttemptsMax: jobs.AttemptsMax,
		JobChannel: jobs.InsertChannel, JobNotice: jobs.InsertNotice(jobs.QueueExecution),
	}
	for _, e := range executions {
		if err := e.addTo(&params); err != nil {
			return nil, err
		}
	}
	rows, err := queries.New().SysExecutionInsert(ctx, db, params)
	if err != nil {
		return nil, fmt.Errorf("insert %d executions: %w", len(executions), err)
	}
	isInserted := make(map[uuid.UUID]bool, len(rows))
	for _, row := range rows {
		isInserted[row.ID] = true
	}
	results := make([]bool, len(executions))
	for i, e := range executions {
		results[i] = isInserted[e.ID]
	}
	return results, nil
}

// insert records one execution without a job, if its workflow is active.
func (e *newExecution) insert(ctx context.Context, db queries.DBTX) (isInserted bool, err error) {
	rows, err := queries.New().ExecutionInsert(ctx, db, queries.ExecutionInsertParams{
		ID: e.ID, TenantID: e.TenantID, WorkflowID: e.WorkflowID, PrincipalID: e.PrincipalID, BillableID: e.BillableID,
		BorrowerID: e.BorrowerID, Tags: orEmpty(e.Tags), IsTest: e.IsTest, RescoreOf: e.RescoreOf, Status: string(e.Status),
		SourceFailed: e.SourceFailed, StatusCode: int32(e.StatusCode),
		TasksCompleted: int32(e.TasksCompleted), TasksFailed: int32(e.TasksFailed),
		CreatedAt: queries.CreatedAt(e.ID), StartedAt: e.StartedAt, CompletedAt: e.CompletedAt, DeadlineAt: e.DeadlineAt,
		LeaseToken: e.LeaseToken, LeaseProcessID: e.LeaseProcessID, Input: e.Input, State: e.State, Result: e.Result,
	})
	if err != nil {
		return false, fmt.Errorf("insert an execution: %w", err)
	}
	return rows == 1, nil
}

// addTo appends the execution's values to those of others.
func (e *newExecution) addTo(p *queries.SysExecutionInsertParams) error {
	tags, err := json.Marshal(orEmpty(e.Tags))
	if err != nil {
		return fmt.Errorf("write the tags of execution %s: %w", e.ID, err)
	}
	p.Ids = append(p.Ids, e.ID)
	p.TenantIds = append(p.TenantIds, e.TenantID)
	p.WorkflowIds = append(p.WorkflowIds, e.WorkflowID)
	p.PrincipalIds = append(p.PrincipalIds, e.PrincipalID)
	p.BillableIds = append(p.BillableIds, e.BillableID)
	p.BorrowerIds = append(p.BorrowerIds, e.BorrowerID)
	p.Tags = append(p.Tags, string(tags))
	p.IsTest = append(p.IsTest, e.IsTest)
	p.RescoresOf = append(p.RescoresOf, e.RescoreOf)
	p.Statuses = append(p.Statuses, string(e.Status))
	p.SourceFailed = append(p.SourceFailed, e.SourceFailed)
	p.StatusCodes = append(p.StatusCodes, int32(e.StatusCode))
	p.TasksCompleted = append(p.TasksCompleted, int32(e.TasksCompleted))
	p.TasksFailed = append(p.TasksFailed, int32(e.TasksFailed))
	p.CreatedAt = append(p.CreatedAt, queries.CreatedAt(e.ID))
	p.StartedAt = append(p.StartedAt, e.StartedAt)
	p.CompletedAt = append(p.CompletedAt, e.CompletedAt)
	p.DeadlinesAt = append(p.DeadlinesAt, e.DeadlineAt)
	p.LeaseTokens = append(p.LeaseTokens, e.LeaseToken)
	p.LeaseProcessIds = append(p.LeaseProcessIds, e.LeaseProcessID)
	p.Inputs = append(p.Inputs, string(e.Input))
	p.States = append(p.States, string(e.State))
	p.Results = append(p.Results, string(e.Result))
	return e.addJobTo(p)
}

func (e *newExecution) addJobTo(p *queries.SysExecutionInsertParams) error {
	var args []byte
	if e.HasJob {
		var err error
		if args, err = json.Marshal(jobs.TaskExecution{TenantID: e.TenantID, ExecutionID: e.ID}); err != nil {
			return fmt.Errorf("write the job of execution %s: %w", e.ID, err)
		}
	}
	p.JobsArgs = append(p.JobsArgs, string(args))
	return nil
}

// Pending is an execution that is recorded together with others. Its input
// matches the workflow's schema and has its defaults.
type Pending struct {
	ID          uuid.UUID // a UUIDv7
	TenantID    uuid.UUID
	PrincipalID string
	WorkflowID  uuid.UUID
	Input       map[string]any
	IsTest      bool
}

// RecordTx records executions as pending in the caller's transaction, whose
// further work is to enqueue the jobs that go on with them. ErrNotActive if the
// workflow of any is not active.
func (s *Service) RecordTx(ctx context.Context, tx pgx.Tx, executions []Pending) error {
	if len(executions) == 0 {
		return nil
	}
	rows := make([]*newExecution, len(executions))
	for i, e := range executions {
		input, err := exactjson.Encode(e.Input)
		if err != nil {
			return fmt.Errorf("write the input: %w", err)
		}
		rows[i] = &newExecution{
			ID: e.ID, TenantID: e.TenantID, WorkflowID: e.WorkflowID, PrincipalID: e.PrincipalID,
			BorrowerID: queries.Value(BorrowerOf(e.Input)), IsTest: e.IsTest, Status: engine.StatusPending, Input: input,
		}
	}
	results, err := insertAll(ctx, tx, rows)
	if err != nil {
		return err
	}
	if slices.Contains(results, false) {
		return ErrNotActive
	}
	return nil
}

// insertion is the row of the request's execution in the given status.
func (r *run) insertion(status engine.Status) (*newExecution, error) {
	req := r.request
	input, err := exactjson.Encode(req.Input)
	if err != nil {
		return nil, fmt.Errorf("write the input: %w", err)
	}
	e := &newExecution{
		ID: r.id, TenantID: r.tenantID, WorkflowID: req.WorkflowID, PrincipalID: req.PrincipalID,
		BillableID: queries.Value(req.BillableID), BorrowerID: queries.Value(req.BorrowerID), Tags: req.Tags,
		IsTest: req.IsTest, RescoreOf: queries.Value(req.RescoreOf), Status: status, Input: input,
	}
	return e, nil
}

// insert records the execution, together with those of other callers unless the
// request joins the transaction.
func (r *run) insert(ctx context.Context, row *newExecution, e Execution) (err error) {
	var isActive bool
	if r.request.Recorded == nil {
		isActive, err = r.service.inserts.Write(ctx, laneOf(row.bytes()), row)
	} else {
		isActive, err = r.insertJoined(ctx, row, e)
	}
	if err == nil && !isActive {
		err = ErrNotActive
	}
	if err != nil {
		return fmt.Errorf("record execution %s: %w", r.id, err)
	}
	return nil
}

func (r *run) insertJoined(ctx context.Context, row *newExecution, e Execution) (isActive bool, err error) {
	err = postgres.InTx(ctx, r.service.Pool, func(tx pgx.Tx) error {
		results, err := insertAll(ctx, tx, []*newExecution{row})
		if err != nil {
			return err
		}
		if isActive = results[0]; !isActive {
			return nil
		}
		return r.request.Recorded(ctx, tx, e)
	})
	return isActive, err
}
