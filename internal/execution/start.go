package execution

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/queries"
)

// pollInterval is how often a caller polls for the end of an execution that another
// process continues.
const pollInterval = 200 * time.Millisecond

// BorrowerIDMax is the maximum number of characters of a borrower's id.
const BorrowerIDMax = 255

// Request asks for a new execution. The input matches the workflow's schema and has its
// defaults.
type Request struct {
	TenantID    uuid.UUID
	PrincipalID string
	WorkflowID  uuid.UUID
	Plan        *workflow.Plan
	Input       map[string]any
	BorrowerID  *string
	BillableID  *string
	Tags        []string
	IsTest      bool
	RescoreOf   *uuid.UUID
	// Recorded, unless nil, joins the transaction that records the execution, with its
	// result if it has ended by then. An error of Recorded rolls the transaction back.
	Recorded func(ctx context.Context, tx pgx.Tx, e Execution) error
}

// Execution is the answer to the caller that started an execution.
type Execution struct {
	ID        uuid.UUID
	Status    engine.Status
	CreatedAt time.Time
	// Result is nil while the execution runs.
	Result *Result
}

// Start records a request together with a job that executes it. Errors: ErrNotActive, and
// nothing is recorded; fault.Unavailable, and the execution may be recorded and then runs.
func (s *Service) Start(ctx context.Context, req Request) (Execution, error) {
	r, err := s.newStart(&req)
	if err != nil {
		return Execution{}, err
	}
	row, err := r.newRow(engine.StatusPending)
	if err != nil {
		return Execution{}, err
	}
	row.HasJob = true
	accepted := Execution{ID: r.id, Status: engine.StatusPending, CreatedAt: queries.CreatedAt(r.id)}
	return accepted, r.insert(ctx, row, accepted)
}

// Run executes a request and waits for its end, at most for wait; zero waits as long as the
// workflow's time limit. If wait is over first, the Execution has no result and continues.
// A caller that disconnects does not stop the execution; with a zero wait Run returns at
// its end even then. Errors: ErrNotActive, and nothing is recorded; fault.Unavailable, and
// the execution may be recorded and then continues.
func (s *Service) Run(ctx context.Context, req Request, wait time.Duration) (Execution, error) {
	r, err := s.newStart(&req)
	if err != nil {
		return Execution{}, err
	}
	if s.life.Err() != nil || !s.running.begin() {
		return Execution{}, errStopping
	}
	if wait == 0 || !req.Plan.Effects {
		// The caller's goroutine runs it: switching to another would delay the answer.
		e, err := s.runCounted(r)
		if err != nil || e.Result != nil {
			return e, err
		}
		return s.poll(ctx, r, nil)
	}
	return s.runWithin(ctx, r, wait)
}

// runWithin runs an execution in the background and waits for its end or for wait to pass.
func (s *Service) runWithin(ctx context.Context, r *startRun, wait time.Duration) (Execution, error) {
	type ending struct {
		execution Execution
		err       error
	}
	ended := make(chan ending, 1)
	go func() {
		e, err := s.runCounted(r)
		ended <- ending{e, err}
	}()
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case e := <-ended:
		if e.err != nil || e.execution.Result != nil {
			return e.execution, e.err
		}
		return s.poll(ctx, r, waiting.Done())
	case <-waiting.Done():
	}
	// The caller may only learn the id of an execution that is recorded.
	select {
	case <-r.recorded:
		return r.ongoing(), ctx.Err()
	case e := <-ended:
		return e.execution, e.err
	case <-ctx.Done():
		return Execution{}, ctx.Err()
	}
}

// runCounted runs an execution that s.running has counted.
func (s *Service) runCounted(r *startRun) (Execution, error) {
	defer s.running.end()
	return r.complete(s.life)
}

// poll waits for the end of an execution that this process has released, until over is
// closed.
func (s *Service) poll(ctx context.Context, r *startRun, over <-chan struct{}) (Execution, error) {
	for {
		select {
		case <-over:
			return r.ongoing(), ctx.Err()
		case <-ctx.Done():
			return Execution{}, ctx.Err()
		case <-s.life.Done():
			return Execution{}, errStopping
		case <-time.After(pollInterval):
		}
		row, err := queries.New().ExecutionGetOutput(ctx, queries.OnPartition(s.Pool, r.id), queries.ExecutionGetOutputParams{TenantID: r.tenantID, ID: r.id})
		if err != nil {
			return Execution{}, postgres.Translate(err)
		}
		if row.Result != nil {
			result, err := ReadResult(row.Result)
			return Execution{ID: r.id, Status: engine.Status(row.Status), CreatedAt: queries.CreatedAt(r.id), Result: result}, err
		}
	}
}

// startRun is the run of a new execution. Nothing is recorded until its first effect
// begins: then it is recorded with a lease and without a job. If this process dies, the
// failure detector finds the lease (RecoverAbandoned). An execution that ends before that is
// recorded with its end, in one commit.
type startRun struct {
	run
	request  *Request
	recorded chan struct{} // closed when the execution is recorded
}

// newStart returns the run of a request. Its lease is not recorded yet.
func (s *Service) newStart(r *Request) (*startRun, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make an id: %w", err)
	}
	state := engine.NewState(r.Plan, id.String())
	made := &startRun{
		request:  r,
		recorded: make(chan struct{}),
		run: run{
			service: s, tenantID: r.TenantID, id: id, tags: r.Tags,
			lease: lease{tenantID: r.TenantID, executionID: id, token: uuid.New()},
			engine: engine.Run{
				Plan: r.Plan, State: state, Input: r.Input,
				Execution: newRoot(id, state.Attempt, r.BorrowerID, r.IsTest),
			},
		},
	}
	if r.Plan.Effects {
		made.connect()
		made.engine.Signals = made.signals
		made.engine.AcquireMemory = made.acquireMemory
	}
	return made, nil
}

// complete drives the run and writes its end. An execution that waits, or that another process
// took over, has no result.
func (r *startRun) complete(ctx context.Context) (Execution, error) {
	ctx = postgres.WithTenant(ctx, r.tenantID)
	f, err := r.drive(ctx, r)
	if err == nil && f != nil {
		r.dropValues(f)
		err = r.finish(ctx, f)
	}
	switch {
	case errors.Is(err, errLeaseLost):
		return r.ongoing(), nil
	case err != nil || f == nil:
		return r.ongoing(), err
	}
	return r.ended(f), nil
}

// signals returns none before the execution is recorded: no sender knows its id.
func (r *startRun) signals(ctx context.Context) (map[string]any, error) {
	if !r.isLeased {
		return nil, nil
	}
	return r.run.signals(ctx)
}

// checkpoint implements recorder.
func (r *startRun) checkpoint(ctx context.Context, state *engine.State) error {
	if !r.isLeased {
		return r.record(ctx)
	}
	return r.service.checkpoint(ctx, r.lease, state)
}

// suspend implements recorder.
func (r *startRun) suspend(ctx context.Context, wakeAt time.Time) error {
	if !r.isLeased {
		if err := r.record(ctx); err != nil {
			return err
		}
	}
	return r.run.suspend(ctx, wakeAt)
}

// record inserts the execution as running and leased, with its state.
func (r *startRun) record(ctx context.Context) error {
	row, err := r.newRow(engine.StatusRunning)
	if err != nil {
		return err
	}
	if row.State, err = r.engine.State.JSON(); err != nil {
		return fmt.Errorf("write the state of execution %s: %w", r.id, err)
	}
	row.LeaseToken, row.LeaseProcessID = r.lease.token, r.service.ProcessID
	row.StartedAt, row.DeadlineAt = r.engine.State.StartedAt, r.engine.State.Deadline
	if err := r.insert(ctx, row, r.ongoing()); err != nil {
		return r.service.releaseUnacknowledged(r.lease, err)
	}
	r.isLeased = true
	close(r.recorded)
	return nil
}

// finish writes the end of the execution. If it is not recorded, its end is its only
// record.
func (r *startRun) finish(ctx context.Context, f *Finished) error {
	if r.isLeased {
		return r.service.finish(ctx, r.lease, f)
	}
	o := f.Outcome
	row, err := r.newRow(o.Status)
	if err != nil {
		return err
	}
	row.TasksCompleted, row.TasksFailed = o.TasksCompleted, o.TasksFailed
	row.SourceFailed, row.StatusCode = o.SourceFailed, o.StatusCode
	row.StartedAt, row.CompletedAt, row.DeadlineAt = f.StartedAt, f.At, f.DeadlineAt
	row.Tags, row.Result, row.State = f.Tags, f.ResultText, f.State
	if err := r.insert(ctx, row, r.ended(f)); err != nil {
		return err
	}
	close(r.recorded)
	return nil
}

// newRow returns the row of the request's execution in a status.
func (r *startRun) newRow(status engine.Status) (*newExecution, error) {
	req := r.request
	input, err := exactjson.Encode(req.Input)
	if err != nil {
		return nil, fmt.Errorf("write the input: %w", err)
	}
	return &newExecution{
		ID: r.id, TenantID: r.tenantID, WorkflowID: req.WorkflowID, PrincipalID: req.PrincipalID,
		BillableID: queries.Value(req.BillableID), BorrowerID: queries.Value(req.BorrowerID), Tags: req.Tags,
		IsTest: req.IsTest, RescoreOf: queries.Value(req.RescoreOf), Status: status, Input: input,
	}, nil
}

// insert records the execution: with those of other callers, or in a transaction that
// Request.Recorded joins.
func (r *startRun) insert(ctx context.Context, row *newExecution, e Execution) (err error) {
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

func (r *startRun) insertJoined(ctx context.Context, row *newExecution, e Execution) (isActive bool, err error) {
	err = postgres.InTx(ctx, r.service.Pool, func(tx pgx.Tx) error {
		results, err := insertExecutions(ctx, tx, []*newExecution{row})
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

// ended returns the answer to a caller whose execution has ended.
func (r *startRun) ended(f *Finished) Execution {
	result := f.Result
	return Execution{ID: r.id, Status: f.Outcome.Status, CreatedAt: queries.CreatedAt(r.id), Result: &result}
}

// ongoing returns the answer to a caller whose execution continues.
func (r *startRun) ongoing() Execution {
	return Execution{ID: r.id, Status: engine.StatusRunning, CreatedAt: queries.CreatedAt(r.id)}
}

// Pending is an execution that RecordTx records. Its input matches the workflow's schema
// and has its defaults.
type Pending struct {
	ID          uuid.UUID // a UUIDv7
	TenantID    uuid.UUID
	PrincipalID string
	WorkflowID  uuid.UUID
	Input       map[string]any
	IsTest      bool
}

// RecordTx records executions as pending in the caller's transaction. The caller enqueues
// their jobs in the same transaction. ErrNotActive if the workflow of any is not active.
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
	isActive, err := insertExecutions(ctx, tx, rows)
	if err != nil {
		return err
	}
	for _, is := range isActive {
		if !is {
			return ErrNotActive
		}
	}
	return nil
}

// CheckInput checks the input of an execution or an item against the schema of its
// workflow, and the length of its borrowerId: a longer id names no borrower.
func CheckInput(plan *workflow.Plan, input map[string]any) (map[string]any, []fault.Detail) {
	filled, faults := plan.CheckInput(input)
	named := filled
	if len(faults) > 0 {
		named = input
	}
	if id, ok := named["borrowerId"].(string); ok && utf8.RuneCountInString(id) > BorrowerIDMax {
		faults = append(faults, fault.Detail{Field: "borrowerId", Message: fmt.Sprintf("must have at most %d characters", BorrowerIDMax)})
	}
	return filled, faults
}

// BorrowerOf returns the borrowerId of an input, or nil if it is not a string of 1 to
// BorrowerIDMax characters (contract 5.3).
func BorrowerOf(input map[string]any) *string {
	id, ok := input["borrowerId"].(string)
	if !ok || id == "" || utf8.RuneCountInString(id) > BorrowerIDMax {
		return nil
	}
	return &id
}
