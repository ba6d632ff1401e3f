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

// CancelChannel is the notification channel of cancelled executions. The payload is the id
// of an execution that a process had leased.
const CancelChannel = "tranche_cancel"

// Cancel ends a pending or running execution as cancelled, at once. The process that runs
// it can write nothing more; a notification makes it stop. Errors: fault.NotFound;
// fault.Invalid if the execution has ended or is an item of a batch.
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

// cancelled returns the end of an execution that is cancelled in its stored state.
func (s *Service) cancelled(ctx context.Context, plan *workflow.Plan, tenantID, id uuid.UUID, row *queries.ExecutionGetForUpdateRow) (*Finished, error) {
	plan, state, err := s.Stored(ctx, tenantID, id, plan, row.State)
	if err != nil {
		return nil, err
	}
	r := run{service: s, tenantID: tenantID, id: id, tags: row.Tags, engine: engine.Run{Plan: plan, State: state}}
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(engine.ErrCancelled)
	verdict, err := s.Runner.Drive(ctx, &r.engine, nil)
	if err != nil {
		return nil, fmt.Errorf("cancel execution %s: %w", id, err)
	}
	return r.finished(verdict.Outcome)
}

// Subscription returns what the process's listener does on CancelChannel for the services
// that run executions.
func Subscription(services ...*Service) postgres.Subscription {
	return postgres.Subscription{
		Notified: func(payload string) {
			for _, s := range services {
				s.cancellable.cancel(payload)
			}
		},
		Resumed: func() {
			for _, s := range services {
				go s.cancelLost()
			}
		},
	}
}

// cancelLost stops the runs whose leases were lost while this process was not listening.
func (s *Service) cancelLost() {
	ids := s.cancellable.ids()
	if len(ids) == 0 {
		return
	}
	lost, err := queries.New().SysExecutionListLeaseLost(s.life, s.Pool, queries.SysExecutionListLeaseLostParams{Ids: ids, ProcessID: s.ProcessID})
	if err != nil && s.life.Err() == nil {
		s.Log.WarnContext(s.life, "cannot look for cancelled executions; their next write finds it", "error", err)
	}
	for _, id := range lost {
		s.cancellable.cancel(id.String())
	}
}

// cancellable has the runs with effects in this process, by execution.
type cancellable struct {
	mu      sync.Mutex
	cancels map[uuid.UUID]*context.CancelCauseFunc
}

// add makes a run cancellable until remove is called. If two runs of an execution are
// added, the later one is kept: the earlier one has lost its lease.
func (c *cancellable) add(ctx context.Context, id uuid.UUID) (run context.Context, remove func()) {
	run, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancels == nil {
		c.cancels = map[uuid.UUID]*context.CancelCauseFunc{}
	}
	c.cancels[id] = &cancel
	return run, func() {
		cancel(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.cancels[id] == &cancel {
			delete(c.cancels, id)
		}
	}
}

// cancel cancels the run of the execution whose id is the payload of a notification. It
// ignores other payloads.
func (c *cancellable) cancel(payload string) {
	id, err := uuid.Parse(payload)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel, ok := c.cancels[id]; ok {
		(*cancel)(engine.ErrCancelled)
	}
}

func (c *cancellable) ids() []uuid.UUID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.cancels))
}

// isCancelled reports whether a run was stopped because its execution was cancelled.
func isCancelled(run context.Context) bool { return errors.Is(context.Cause(run), engine.ErrCancelled) }
