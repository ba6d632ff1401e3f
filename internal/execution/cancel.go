package execution

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/queries"
)

// CancelChannel is where processes are told, by its id, of an execution that was
// cancelled while one of them held it.
const CancelChannel = "tranche_cancel"

// Cancel ends a pending or running execution as cancelled, at once: whoever
// drives it can write no more, is told, and stops what it does. fault.NotFound
// if there is none, fault.Invalid where it has ended or is an item of a batch.
func (s *Service) Cancel(ctx context.Context, tenantID, id uuid.UUID) error {
	plan, err := s.plan(ctx, tenantID, id)
	if err != nil {
		return err
	}
	return postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		row, err := getForUpdate(ctx, tx, tenantID, id)
		if err != nil {
			return err
		}
		if row.BatchID != nil {
			return errStatus("the execution is an item of a batch: cancel the batch")
		}
		if status := engine.Status(row.Status); status.Ended() {
			return errStatus(fmt.Sprintf("only a pending or running execution can be cancelled; this one is %s", status))
		}
		f, err := s.cancelled(ctx, plan, tenantID, id, &row)
		if err != nil {
			return err
		}
		q := queries.New()
		err = q.ExecutionCancel(ctx, tx, queries.ExecutionCancelParams{
			TenantID: tenantID, ID: id, StatusCode: int32(f.Outcome.StatusCode), TasksCompleted: int32(f.Outcome.TasksCompleted),
			TasksFailed: int32(f.Outcome.TasksFailed), CompletedAt: f.At, State: f.State, Result: f.ResultText,
		})
		if err != nil || row.LeaseToken == nil {
			return err
		}
		return q.SysNotificationSend(ctx, tx, queries.SysNotificationSendParams{Channel: CancelChannel, Payload: id.String()})
	})
}

// cancelled is the end of an execution that is cancelled in its stored state.
func (s *Service) cancelled(ctx context.Context, plan *workflow.Plan, tenantID, id uuid.UUID, row *queries.ExecutionGetForUpdateRow) (*Finished, error) {
	plan, state, err := s.Stored(ctx, tenantID, id, plan, row.State)
	if err != nil {
		return nil, err
	}
	r := &run{service: s, tenantID: tenantID, id: id, tags: row.Tags, engine: engine.Run{Plan: plan, State: state}}
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(engine.ErrCancelled)
	verdict, err := s.Runner.Drive(ctx, &r.engine, nil)
	if err != nil {
		return nil, fmt.Errorf("cancel execution %s: %w", id, err)
	}
	return finished(r, verdict.Outcome)
}

// Subscription is what a process' listener does on CancelChannel, for each of
// the services that drive executions.
func Subscription(services ...*Service) postgres.Subscription {
	return postgres.Subscription{
		Notified: func(payload string) {
			for _, s := range services {
				s.held.interrupt(payload)
			}
		},
		Resumed: func() {
			for _, s := range services {
				go s.interruptLost()
			}
		},
	}
}

// interruptLost stops the runs whose executions were taken from this process
// while it was not listening.
func (s *Service) interruptLost() {
	ids := s.held.ids()
	if len(ids) == 0 {
		return
	}
	lost, err := queries.New().SysExecutionListLeaseLost(s.life, s.Pool, queries.SysExecutionListLeaseLostParams{Ids: ids, ProcessID: s.ProcessID})
	if err != nil && s.life.Err() == nil {
		s.Log.WarnContext(s.life, "cannot look for executions that were cancelled; their next write does", "error", err)
	}
	for _, id := range lost {
		s.held.interrupt(id.String())
	}
}

// held are the runs with effects that this process drives.
type held struct {
	mu         sync.Mutex
	interrupts map[uuid.UUID]*context.CancelCauseFunc
}

// add makes a run known under its context until release is called. Of two of one
// execution the later is known: the earlier has lost its lease.
func (h *held) add(ctx context.Context, id uuid.UUID) (run context.Context, release func()) {
	run, interrupt := context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.interrupts == nil {
		h.interrupts = map[uuid.UUID]*context.CancelCauseFunc{}
	}
	h.interrupts[id] = &interrupt
	return run, func() {
		interrupt(nil)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.interrupts[id] == &interrupt {
			delete(h.interrupts, id)
		}
	}
}

func (h *held) interrupt(payload string) {
	id, err := uuid.Parse(payload)
	if err != nil {
		return // not ours: anybody may notify
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if interrupt, ok := h.interrupts[id]; ok {
		(*interrupt)(engine.ErrCancelled)
	}
}

func (h *held) ids() []uuid.UUID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.interrupts))
}

// interrupted reports whether a run was stopped because its execution was
// cancelled.
func interrupted(run context.Context) bool { return errors.Is(context.Cause(run), engine.ErrCancelled) }
