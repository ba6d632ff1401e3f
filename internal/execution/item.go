package execution

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
)

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
	// IsUnrecorded is set if the item has no row: the first write inserts it. Its id is the
	// same in every run.
	IsUnrecorded bool
}

// Checkpoint is the state of an item that must be durable before effects begin.
type Checkpoint struct {
	ID         uuid.UUID
	LeaseToken uuid.UUID
	// Begins is set for the first checkpoint of a pending item: it takes the lease.
	Begins                      bool
	StartedAt, DeadlineAt       time.Time
	State                       []byte
	TasksCompleted, TasksFailed int32
}

// StoreItem writes a checkpoint of an item. It reports whether this process has the lease.
type StoreItem func(context.Context, *Checkpoint) (isLeased bool, err error)

// RunPure runs an execution without effects to its end in memory. It takes no lease: every
// process computes the same result.
func (s *Service) RunPure(ctx context.Context, item Item) (*Finished, error) {
	if item.Plan.Effects {
		return nil, fault.New(fault.Internal, "execution %s has effects", item.ID)
	}
	r := s.newRun(&item)
	verdict, err := s.Runner.Drive(ctx, &r.engine, nil)
	if err != nil {
		return nil, err
	}
	return r.finished(verdict.Outcome)
}

// RunItem runs a new item whose plan has effects. store takes the lease with the item's
// first checkpoint, so that many items share a statement.
//
// The first calls of an unrecorded item need no checkpoint if another run would make the
// same calls (workflow.Plan.Repeatable). If the item ends with them, it has no lease, and
// its end is its only record.
func (s *Service) RunItem(ctx context.Context, item Item, store StoreItem) (*Finished, Holding, error) {
	r := &itemRun{run: s.newRun(&item), store: store, progress: beforeCalls}
	if item.IsUnrecorded && item.Plan.Repeatable() {
		r.progress = beforeRepeatableCalls
	}
	r.batchID = &item.BatchID
	r.connect()
	f, err := r.drive(ctx, r)
	if err != nil {
		holding, err := holdingOf(err)
		return nil, holding, err
	}
	return f, Held, nil
}

func (s *Service) newRun(item *Item) run {
	state := engine.NewState(item.Plan, item.ID.String())
	state.Attempt = max(state.Attempt, item.Attempt)
	return run{
		service: s, tenantID: item.TenantID, id: item.ID, tags: item.Tags,
		lease: lease{tenantID: item.TenantID, executionID: item.ID, hasJob: true},
		engine: engine.Run{
			Plan: item.Plan, State: state, Input: item.Input, Custom: item.Custom,
			Execution: newRoot(item.ID, item.Attempt, item.BorrowerID, item.IsTest),
		},
	}
}

// itemProgress says which calls of an item may have been made.
type itemProgress int

const (
	beforeRepeatableCalls itemProgress = iota // none; the first ones need no checkpoint
	beforeCalls                               // none, or only repeatable ones
)

// itemRun is the run of a new item of a batch. Package batch records it.
type itemRun struct {
	run
	store    StoreItem
	progress itemProgress
}

// checkpoint implements recorder.
func (r *itemRun) checkpoint(ctx context.Context, state *engine.State) error {
	if r.progress == beforeRepeatableCalls {
		r.progress = beforeCalls
		return nil
	}
	return r.storeState(ctx, state)
}

// suspend implements recorder.
func (r *itemRun) suspend(ctx context.Context, wakeAt time.Time) error {
	if !r.isLeased {
		if err := r.storeState(ctx, r.engine.State); err != nil {
			return err
		}
	}
	return r.run.suspend(ctx, wakeAt)
}

// storeState stores the state. The first time, it takes the lease.
func (r *itemRun) storeState(ctx context.Context, state *engine.State) error {
	if !r.isLeased {
		r.lease.token = uuid.New()
	}
	params, err := checkpointParams(r.lease, state)
	if err != nil {
		return err
	}
	isLeased, err := r.store(ctx, &Checkpoint{
		ID: r.id, LeaseToken: r.lease.token, Begins: !r.isLeased, StartedAt: state.StartedAt, DeadlineAt: state.Deadline,
		State: params.State, TasksCompleted: params.TasksCompleted, TasksFailed: params.TasksFailed,
	})
	switch {
	case err != nil && !r.isLeased:
		r.isLeased = true // perhaps
		return r.service.releaseUnacknowledged(r.lease, err)
	case err != nil:
		return err
	case !isLeased:
		return errLeaseLost
	}
	r.isLeased = true
	return nil
}

// Cancelled returns the end, as cancelled, of an item that waits and that no process has
// leased; nil if that is no longer so. The caller writes it like an end of RunLeased. If
// the item begins meanwhile, the write changes nothing.
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
