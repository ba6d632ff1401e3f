package execution

import (
	"context"
	"encoding/json"
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

// Holding says whether a job may continue an execution.
type Holding int

// The holdings.
const (
	Held          Holding = iota // this process has the lease
	HeldElsewhere                // another live process has the lease: try again later
	Over                         // the execution has ended or is unknown
)

// resumedRun is the run of a recorded execution that a job continues.
type resumedRun struct {
	run
	isAdmitted bool // package batch has limited its memory
}

// checkpoint implements recorder.
func (r *resumedRun) checkpoint(ctx context.Context, state *engine.State) error {
	return r.service.checkpoint(ctx, r.lease, state)
}

// RunLeased takes the lease of an execution and drives it until it ends or waits.
// HeldElsewhere asks for another attempt later, also if the lease is lost on the way. The
// caller writes a Finished that is not nil: with End, or together with others. The stored
// state and large answers wait for the tenant's memory limit.
func (s *Service) RunLeased(ctx context.Context, tenantID, id uuid.UUID) (*Finished, Holding, error) {
	return s.resume(ctx, tenantID, id, false)
}

// RunAdmitted is RunLeased for an item whose memory package batch has limited: neither its
// stored state nor its answers wait for the tenant's memory limit.
func (s *Service) RunAdmitted(ctx context.Context, tenantID, id uuid.UUID) (*Finished, Holding, error) {
	return s.resume(ctx, tenantID, id, true)
}

func (s *Service) resume(ctx context.Context, tenantID, id uuid.UUID, isAdmitted bool) (*Finished, Holding, error) {
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
		f, err := s.runPending(ctx, tenantID, id, plan, row)
		return f, Held, err
	}
	r, err := s.take(ctx, tenantID, id, plan, isAdmitted)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, HeldElsewhere, nil
	}
	if err != nil {
		return nil, Held, postgres.Translate(err)
	}
	f, err := r.drive(ctx, r)
	if err != nil {
		holding, err := holdingOf(err)
		return nil, holding, err
	}
	if f != nil && f.BatchID == nil {
		r.dropValues(f)
	}
	return f, Held, nil
}

// End writes an execution that RunLeased finished and that is no item of a batch.
func (s *Service) End(ctx context.Context, f *Finished) (Holding, error) {
	l := lease{tenantID: f.TenantID, executionID: f.ID, token: f.LeaseToken, hasJob: true}
	return holdingOf(s.finish(ctx, l, f))
}

// holdingOf turns errLeaseLost into HeldElsewhere.
func holdingOf(err error) (Holding, error) {
	if errors.Is(err, errLeaseLost) {
		return HeldElsewhere, nil
	}
	return Held, err
}

// runPending runs a pending execution without effects. It takes no lease: every process
// computes the same result, and the first one to write it ends the execution.
func (s *Service) runPending(ctx context.Context, tenantID, id uuid.UUID, plan *workflow.Plan, row *queries.SysExecutionListRunnableRow) (*Finished, error) {
	input, err := exactjson.Decode(row.Input)
	if err != nil {
		return nil, fmt.Errorf("read the input of execution %s: %w", id, err)
	}
	return s.RunPure(ctx, Item{
		TenantID: tenantID, ID: id, Plan: plan, Input: input, BorrowerID: row.BorrowerID,
		IsTest: row.IsTest, Attempt: int(row.Attempt), Tags: row.Tags,
	})
}

// take takes the lease of an execution and loads its state. pgx.ErrNoRows: another process
// has the lease, or the execution has ended.
func (s *Service) take(ctx context.Context, tenantID, id uuid.UUID, plan *workflow.Plan, isAdmitted bool) (*resumedRun, error) {
	now := s.Clock()
	r := &resumedRun{isAdmitted: isAdmitted, run: run{
		service: s, tenantID: tenantID, id: id,
		lease: lease{tenantID: tenantID, executionID: id, token: uuid.New(), hasJob: true},
	}}
	row, err := queries.New().ExecutionLease(ctx, queries.OnPartition(s.Pool, id), queries.ExecutionLeaseParams{
		TenantID: tenantID, ID: id, LeaseToken: r.lease.token, LeaseProcessID: s.ProcessID,
		Now: now, DeadlineAt: now.Add(plan.Timeout), DeadAfterSeconds: liveness.DeadAfter.Seconds(),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, err
	}
	if err != nil {
		return nil, s.releaseUnacknowledged(r.lease, err)
	}
	r.isLeased, r.tags, r.batchID, r.engine.Plan = true, row.Tags, row.BatchID, plan
	if !isAdmitted {
		limited, cancel := context.WithDeadline(ctx, *row.DeadlineAt)
		r.acquireMemory(limited, len(row.Input)+len(row.CustomInput)+len(row.State))
		cancel()
	}
	if r.engine, err = s.load(ctx, plan, tenantID, id, row); err != nil {
		r.releaseMemory()
		return nil, r.abandon(err)
	}
	r.connect()
	if !isAdmitted {
		r.engine.AcquireMemory = r.acquireMemory
	}
	return r, nil
}

// load returns the engine's run of a leased execution.
func (s *Service) load(ctx context.Context, plan *workflow.Plan, tenantID, id uuid.UUID, row queries.ExecutionLeaseRow) (engine.Run, error) {
	r := engine.Run{
		Execution: newRoot(id, int(row.Attempt), row.BorrowerID, row.IsTest),
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
	// An item that is retried from its beginning has no stored state.
	r.State.Attempt, r.State.Deadline = int(row.Attempt), *row.DeadlineAt
	return r, nil
}

// Stored reads the stored state of an execution; empty text is the state of one that has
// not begun. It links the plan with the versions that the execution began with.
func (s *Service) Stored(ctx context.Context, tenantID, id uuid.UUID, plan *workflow.Plan, text []byte) (*workflow.Plan, *engine.State, error) {
	state := engine.NewState(plan, id.String())
	if len(text) > 0 {
		if err := json.Unmarshal(text, state); err != nil {
			return nil, nil, fmt.Errorf("read the state of execution %s: %w", id, err)
		}
	}
	plan, err := s.Catalog.Link(ctx, tenantID, plan, state.Pins)
	return plan, state, err
}
