package execution

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/liveness"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/queries"
)

// Holding says whether a job may go on with an execution.
type Holding int

// The holdings.
const (
	Held          Holding = iota // by this process, now
	HeldElsewhere                // by another process that lives: try again later
	Over                         // it has ended or is unknown
)

// reference names an execution.
type reference struct{ tenantID, id uuid.UUID }

func (r reference) tenant() uuid.UUID { return r.tenantID }

// readAll reads executions in one statement: nil for each that does not exist.
func readAll(ctx context.Context, db queries.DBTX, executions []reference) ([]*queries.SysExecutionListRunnableRow, error) {
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

// End writes an execution that RunLeased finished and that is no item of a batch.
func (s *Service) End(ctx context.Context, f *Finished) (Holding, error) {
	r := &run{service: s, tenantID: f.TenantID, id: f.ID, token: f.LeaseToken}
	if err := r.finish(ctx, f); err != nil {
		return lost(err)
	}
	return Held, nil
}

// RunLeased takes the lease of an execution and drives it until it ends or
// waits. HeldElsewhere asks for another try later: also when the lease was lost
// on the way. The last write is the caller's: a Finished that is not nil has to
// be given to End or written with others. What is stored of it is decoded when there
// is room for it, as large answers are.
func (s *Service) RunLeased(ctx context.Context, tenantID, id uuid.UUID) (*Finished, Holding, error) {
	return s.runLeased(ctx, &run{service: s, tenantID: tenantID, id: id})
}

// RunAdmitted is RunLeased for an item that package batch has admitted by what such
// items hold: neither what is stored of it nor its answers wait for room.
func (s *Service) RunAdmitted(ctx context.Context, tenantID, id uuid.UUID) (*Finished, Holding, error) {
	return s.runLeased(ctx, &run{service: s, tenantID: tenantID, id: id, isAdmitted: true})
}

func (s *Service) runLeased(ctx context.Context, r *run) (*Finished, Holding, error) {
	tenantID, id := r.tenantID, r.id
	row, err := s.reads.Write(ctx, smallItems, reference{tenantID, id})
	if err != nil {
		return nil, Held, err
	}
	if row == nil || engine.Status(row.Status).Ended() {
		return nil, Over, nil
	}
	_, plan, err := s.Catalog.Plan(ctx, tenantID, row.WorkflowID)
	if err != nil {
		return nil, Held, fmt.Errorf("plan of execution %s: %w", id, err)
	}
	if !plan.Effects && row.IsNew && row.BatchID == nil && engine.Status(row.Status) == engine.StatusPending {
		f, err := s.runNew(ctx, tenantID, id, plan, row)
		return f, Held, err
	}
	defer r.releaseMemory()
	err = r.lease(ctx, plan)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, HeldElsewhere, nil
	}
	if err != nil {
		return nil, Held, postgres.Translate(err)
	}
	f, err := r.drive(ctx)
	if err != nil {
		holding, err := lost(err)
		return nil, holding, err
	}
	return f, Held, nil
}

// runNew runs an execution without effects that nobody has begun. It takes no
// lease: who ends it first has ended it, and the others come to the same result.
func (s *Service) runNew(ctx context.Context, tenantID, id uuid.UUID, plan *workflow.Plan, row *queries.SysExecutionListRunnableRow) (*Finished, error) {
	input, err := exactjson.Decode(row.Input)
	if err != nil {
		return nil, fmt.Errorf("read the input of execution %s: %w", id, err)
	}
	return s.RunPure(ctx, Item{
		TenantID: tenantID, ID: id, Plan: plan, Input: input, BorrowerID: row.BorrowerID,
		IsTest: row.IsTest, Attempt: int(row.Attempt), Tags: row.Tags,
	})
}

func lost(err error) (Holding, error) {
	if errors.Is(err, errLeaseLost) {
		return HeldElsewhere, nil
	}
	return Held, err
}

// lease makes this process the holder of an execution and loads what it needs
// to go on. pgx.ErrNoRows: somebody else holds it or has ended it.
func (r *run) lease(ctx context.Context, plan *workflow.Plan) error {
	s, now := r.service, r.service.Clock()
	r.token = uuid.New()
	row, err := queries.New().ExecutionLease(ctx, queries.OnPartition(s.Pool, r.id), queries.ExecutionLeaseParams{
		TenantID: r.tenantID, ID: r.id, LeaseToken: r.token, LeaseProcessID: s.ProcessID,
		Now: now, DeadlineAt: now.Add(plan.Timeout), DeadAfterSeconds: liveness.DeadAfter.Seconds(),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if err != nil {
		return r.unsure(err)
	}
	r.tags, r.batchID, r.engine.Plan = row.Tags, row.BatchID, plan
	if !r.isAdmitted {
		limited, cancel := context.WithDeadline(ctx, *row.DeadlineAt)
		r.acquireMemory(limited, len(row.Input)+len(row.CustomInput)+len(row.State))
		cancel()
	}
	if r.engine, err = s.resumed(ctx, plan, r.tenantID, r.id, row); err != nil {
		return r.giveUp(err)
	}
	r.connect()
	return nil
}

// resumed is what the engine goes on with.
func (s *Service) resumed(ctx context.Context, plan *workflow.Plan, tenantID, id uuid.UUID, row queries.ExecutionLeaseRow) (engine.Run, error) {
	r := engine.Run{
		Execution: root(id, int(row.Attempt), row.BorrowerID, row.IsTest),
	}
	var err error
	if r.Input, err = exactjson.Decode(row.Input); err != nil {
		return r, fmt.Errorf("read the input of execution %s: %w", id, err)
	}
	if row.CustomInput != nil {
		if r.Custom, err = exactjson.Decode(row.CustomInput); err != nil {
			return r, fmt.Errorf("read the custom input of execution %s: %w", id, err)
		}
	}
	if r.Plan, r.State, err = s.Stored(ctx, tenantID, id, plan, row.State); err != nil {
		return r, err
	}
	r.State.Attempt, r.State.Deadline = int(row.Attempt), *row.DeadlineAt // of an item that is retried from its beginning nothing is stored
	return r, nil
}
