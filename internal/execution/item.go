package execution

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
)

// Cancelled is the end, as cancelled, of an item that waits and that no process
// holds. It is nil if that is no longer so. It has to be written like one that
// RunLeased gave; what begins meanwhile wins over it.
func (s *Service) Cancelled(ctx context.Context, tenantID, id uuid.UUID, plan *workflow.Plan) (f *Finished, err error) {
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		row, err := getForUpdate(ctx, tx, tenantID, id)
		if err != nil {
			return err
		}
		if engine.Status(row.Status) != engine.StatusRunning || row.LeaseToken != nil {
			return nil
		}
		f, err = s.cancelled(ctx, plan, tenantID, id, &row)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cancel item %s: %w", id, err)
	}
	return f, nil
}

// Item is an execution of a batch that has not begun.
type Item struct {
	TenantID   uuid.UUID
	ID         uuid.UUID
	BatchID    uuid.UUID
	Plan       *workflow.Plan
	Input      any
	Custom     any
	BorrowerID *string
	IsTest     bool
	Attempt    int
	Tags       []string
	// IsUnrecorded says that there is no row of it: the first write inserts one. Its
	// id is the same in every run.
	IsUnrecorded bool
}

// RunPure runs an execution whose plan has no effects to its end in memory. It
// takes no lease: its result is the same whoever computes it.
func (s *Service) RunPure(ctx context.Context, item Item) (*Finished, error) {
	if item.Plan.Effects {
		return nil, fault.New(fault.Internal, "execution %s has effects", item.ID)
	}
	r := s.runOf(&item)
	verdict, err := s.Runner.Drive(ctx, &r.engine, nil)
	if err != nil {
		return nil, err
	}
	return finished(r, verdict.Outcome)
}

func (s *Service) runOf(item *Item) *run {
	state := engine.NewState(item.Plan, item.ID.String())
	state.Attempt = max(state.Attempt, item.Attempt)
	return &run{service: s, tenantID: item.TenantID, id: item.ID, tags: item.Tags, engine: engine.Run{
		Plan: item.Plan, State: state, Input: item.Input, Custom: item.Custom,
		Execution: root(item.ID, item.Attempt, item.BorrowerID, item.IsTest),
	}}
}

// Checkpoint is the state of an item that is to be durable before effects begin.
type Checkpoint struct {
	ID         uuid.UUID
	LeaseToken uuid.UUID
	// Begins says that this is the first checkpoint of an item that was pending until now:
	// with it this process takes its lease.
	Begins                      bool
	StartedAt, DeadlineAt       time.Time
	State                       []byte
	TasksCompleted, TasksFailed int32
}

// RunItem is RunLeased for an item whose plan has effects and which has no state
// yet. Its lease is taken with the first state that store writes, so that many items
// share a statement; store reports whether the item is this process'. Before the first
// calls of an unrecorded item nothing is stored if another run would make the same calls
// (workflow.Plan.Repeatable): should the item end with them, it has no lease, and its end
// is its only record.
func (s *Service) RunItem(ctx context.Context, item Item, store func(context.Context, *Checkpoint) (bool, error)) (*Finished, Holding, error) {
	r := s.runOf(&item)
	r.batchID, r.isAdmitted = &item.BatchID, true
	r.connect()
	running, release := s.held.add(workflow.WithTenant(ctx, item.TenantID), item.ID)
	defer release()
	isKnown := item.IsUnrecorded && item.Plan.Repeatable() // what the first state would say
	verdict, err := s.Runner.Drive(running, &r.engine, func(ctx context.Context, state *engine.State) error {
		if isKnown {
			isKnown = false
			return nil
		}
		return r.store(ctx, state, store)
	})
	if err == nil && r.token == uuid.Nil && verdict.Outcome == nil {
		err = r.store(ctx, r.engine.State, store)
	}
	switch {
	case interrupted(running):
		return nil, HeldElsewhere, nil
	case err != nil && ctx.Err() != nil && r.token != uuid.Nil:
		err = errors.Join(errStopping, r.handOver(ctx))
	case err != nil && r.token != uuid.Nil:
		err = r.giveUp(err)
	case err == nil && verdict.Outcome == nil:
		err = r.giveUp(r.suspend(ctx, verdict.WakeAt))
	}
	if err != nil || verdict.Outcome == nil {
		holding, err := lost(err)
		return nil, holding, err
	}
	f, err := finished(r, verdict.Outcome)
	return f, Held, err
}

// store makes the state of an item durable; the first one makes this process
// the holder of its lease.
func (r *run) store(ctx context.Context, state *engine.State, write func(context.Context, *Checkpoint) (bool, error)) error {
	params, err := r.checkpointParams(state)
	if err != nil {
		return err
	}
	c := &Checkpoint{
		ID: r.id, LeaseToken: r.token, Begins: r.token == uuid.Nil, StartedAt: state.StartedAt, DeadlineAt: state.Deadline,
		State: params.State, TasksCompleted: params.TasksCompleted, TasksFailed: params.TasksFailed,
	}
	if c.Begins {
		c.LeaseToken = uuid.New()
	}
	isHeld, err := write(ctx, c)
	switch {
	case err != nil && c.Begins:
		r.token = c.LeaseToken
		return r.unsure(err)
	case err != nil:
		return err
	case !isHeld:
		return errLeaseLost
	}
	r.token = c.LeaseToken
	return nil
}
