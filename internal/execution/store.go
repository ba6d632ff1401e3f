package execution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/jobs"
	"tranche/queries"
)

// The functions here write and read several executions in one statement. A single one has
// a statement of its own, which PostgreSQL plans for its partition.

// newExecution is the row of an execution that is about to be recorded. Members that are
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
	Input       []byte // JSON, like State and Result
	State       []byte

	// if it has begun
	StartedAt  time.Time
	DeadlineAt time.Time
	// if this process runs it
	LeaseToken     uuid.UUID
	LeaseProcessID uuid.UUID
	// if it has ended
	SourceFailed   bool
	StatusCode     int
	TasksCompleted int
	TasksFailed    int
	CompletedAt    time.Time
	Result         []byte

	// HasJob inserts the job that executes it.
	HasJob bool
}

func (e *newExecution) tenant() uuid.UUID { return e.TenantID }

func (e *newExecution) bytes() int { return len(e.Input) + len(e.State) + len(e.Result) }

// insertExecutions records the executions whose workflow is active. It reports for each
// whether it is recorded.
func insertExecutions(ctx context.Context, db queries.DBTX, executions []*newExecution) ([]bool, error) {
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

// addTo appends the execution to the parameters of a statement.
func (e *newExecution) addTo(p *queries.SysExecutionInsertParams) error {
	tags, err := json.Marshal(orEmpty(e.Tags))
	if err != nil {
		return fmt.Errorf("write the tags of execution %s: %w", e.ID, err)
	}
	var job []byte
	if e.HasJob {
		if job, err = json.Marshal(jobs.TaskExecution{TenantID: e.TenantID, ExecutionID: e.ID}); err != nil {
			return fmt.Errorf("write the job of execution %s: %w", e.ID, err)
		}
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
	p.JobsArgs = append(p.JobsArgs, string(job))
	return nil
}

// reference names an execution.
type reference struct{ tenantID, id uuid.UUID }

func (r reference) tenant() uuid.UUID { return r.tenantID }

// readExecutions reads what a run needs of each execution; nil if it does not exist.
func readExecutions(ctx context.Context, db queries.DBTX, executions []reference) ([]*queries.SysExecutionListRunnableRow, error) {
	var params queries.SysExecutionListRunnableParams
	for _, e := range executions {
		params.Ids, params.TenantIds = append(params.Ids, e.id), append(params.TenantIds, e.tenantID)
	}
	rows, err := queries.New().SysExecutionListRunnable(ctx, db, params)
	if err != nil {
		return nil, fmt.Errorf("read %d executions: %w", len(executions), err)
	}
	found := make(map[reference]*queries.SysExecutionListRunnableRow, len(rows))
	for i := range rows {
		found[reference{rows[i].TenantID, rows[i].ID}] = &rows[i]
	}
	results := make([]*queries.SysExecutionListRunnableRow, len(executions))
	for i, e := range executions {
		results[i] = found[e]
	}
	return results, nil
}

// plan returns the plan of an execution; fault.NotFound if the execution does not exist.
func (s *Service) plan(ctx context.Context, tenantID, id uuid.UUID) (*workflow.Plan, error) {
	row, err := s.reads.Write(ctx, smallItems, reference{tenantID, id})
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, errUnknown
	}
	_, plan, err := s.Catalog.Plan(ctx, tenantID, row.WorkflowID)
	return plan, err
}

func getForUpdate(ctx context.Context, tx pgx.Tx, tenantID, id uuid.UUID) (queries.ExecutionGetForUpdateRow, error) {
	row, err := queries.New().ExecutionGetForUpdate(ctx, tx, queries.ExecutionGetForUpdateParams{TenantID: tenantID, ID: id})
	if err != nil {
		return row, readError(err)
	}
	return row, nil
}

func readError(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return errUnknown
	}
	return postgres.Translate(err)
}

// errStatus is the error of a request that the status of the execution forbids
// (contract 1.9).
func errStatus(reason string) error {
	return fault.New(fault.Invalid, "%s", reason).WithSubCode(fault.InvalidExecutionStatus)
}

func (f *Finished) tenant() uuid.UUID { return f.TenantID }

func (f *Finished) bytes() int { return len(f.State) + len(f.ResultText) }

// finishExecutions writes the ends of recorded executions. It returns 1 for each, or 0 if
// the execution has ended or has another lease.
func finishExecutions(ctx context.Context, db queries.DBTX, ends []*Finished) ([]int64, error) {
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

// addTo appends the end to the parameters of a statement.
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

// countTasks returns how many tasks of a state have completed and failed.
func countTasks(state *engine.State) (completed, failed int32) {
	for _, task := range state.Tasks {
		switch task.Status { //nolint:exhaustive // the other statuses are not counted
		case engine.StatusCompleted:
			completed++
		case engine.StatusFailed:
			failed++
		}
	}
	return completed, failed
}

// requeueExecutions releases leases and inserts a job for each execution that is due at
// once. It returns 1 for each, or 0 if the lease is lost or the row is locked.
func requeueExecutions(ctx context.Context, db queries.DBTX, leases []lease) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, handOverTimeMax)
	defer cancel()
	released, err := releaseLeases(ctx, db, leases, nil)
	if err != nil {
		return nil, err
	}
	type key struct{ executionID, token uuid.UUID }
	rows := make(map[key]int64, len(released))
	for _, row := range released {
		rows[key{row.ID, row.LeaseToken}] = 1
	}
	results := make([]int64, len(leases))
	for i, l := range leases {
		results[i] = rows[key{l.executionID, l.token}]
	}
	return results, nil
}

// releaseLeases releases leases that are not lost and whose rows nobody locks. It inserts a
// job for each execution except those that have jobs.
func releaseLeases(ctx context.Context, db queries.DBTX, leases []lease, haveJobs map[uuid.UUID]bool) ([]queries.SysExecutionReleaseRow, error) {
	params := queries.SysExecutionReleaseParams{
		JobKind: jobs.TaskExecution{}.Kind(), JobQueue: jobs.QueueExecution, JobAttemptsMax: jobs.AttemptsMax,
		JobChannel: jobs.InsertChannel, JobNotice: jobs.InsertNotice(jobs.QueueExecution),
	}
	for _, l := range leases {
		params.Ids = append(params.Ids, l.executionID)
		params.TenantIds = append(params.TenantIds, l.tenantID)
		params.LeaseTokens = append(params.LeaseTokens, l.token)
		params.NeedJobs = append(params.NeedJobs, !haveJobs[l.executionID])
	}
	released, err := queries.New().SysExecutionRelease(ctx, db, params)
	if err != nil {
		return nil, fmt.Errorf("release the leases of %d executions: %w", len(leases), err)
	}
	return released, nil
}
