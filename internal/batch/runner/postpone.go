package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tranche/internal/batch"
	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/queries"
)

// noticeUnreachable is the code of the notice that the items of a batch wait for a host.
const noticeUnreachable = "TARGET_UNREACHABLE"

// unavailable returns the host for which a failed item has to wait; empty if its failure
// counts.
func (r *Runner) unavailable(key batch.Key, w *watch, f *execution.Finished) string {
	if f.Outcome.TasksFailed == 0 || r.circuits.isPatienceOver(key.ID, r.Clock()) {
		return ""
	}
	return w.unavailable()
}

// openCircuit makes the items of a batch wait for a host, and adds a notice to the batch. It
// returns how long they wait.
func (r *Runner) openCircuit(ctx context.Context, key batch.Key, host string) (time.Duration, error) {
	wait, isNew := r.circuits.hold(circuitKey{key.TenantID, host}, key.ID, r.Clock())
	if !isNew {
		return wait, nil
	}
	notice, err := json.Marshal(workflow.Notice{
		Code: noticeUnreachable, Level: workflow.LevelWarning, Source: host, CreatedAt: r.Clock(),
		Message: "no connection could be made; items wait and are tried again",
	})
	if err != nil {
		return wait, err
	}
	err = r.q.BatchNoticeAdd(ctx, r.Pool, queries.BatchNoticeAddParams{
		TenantID: key.TenantID, ID: key.ID, Notice: notice, Code: noticeUnreachable, Source: host,
	})
	if err != nil {
		return wait, postgres.Translate(fmt.Errorf("add a notice to batch %s: %w", key.ID, err))
	}
	return wait, nil
}

// postponeRecorded postpones a recorded item that failed because a host is unavailable. What
// it completed is kept, and the rest runs again when the host is available. The attempt stays
// the same, because nothing outside the service has seen it.
func (r *Runner) postponeRecorded(ctx context.Context, key batch.Key, plan *workflow.Plan, f *execution.Finished, host string) (execution.Holding, error) {
	wait, err := r.openCircuit(ctx, key, host)
	if err != nil {
		r.Executions.Release(ctx, f)
		return execution.Held, err
	}
	state, err := r.undoneState(ctx, plan, f)
	if err != nil {
		r.Executions.Release(ctx, f)
		return execution.Held, err
	}
	return r.postpone(ctx, key, f, state, wait)
}

// postpone records the state from which an item continues, and releases its lease.
func (r *Runner) postpone(ctx context.Context, key batch.Key, f *execution.Finished, state []byte, wait time.Duration) (execution.Holding, error) {
	rows, err := r.q.BatchItemPostpone(ctx, r.Pool, queries.BatchItemPostponeParams{
		TenantID: key.TenantID, BatchID: key.ID, ID: f.ID, LeaseToken: f.LeaseToken, State: state,
	})
	if err != nil {
		r.Executions.Release(ctx, f)
		return execution.Held, postgres.Translate(fmt.Errorf("postpone execution %s: %w", f.ID, err))
	}
	if rows == 0 {
		return execution.HeldElsewhere, nil
	}
	return execution.Held, &CircuitOpenError{Wait: wait}
}

// undoneState returns the state of an item that ended, in which its incomplete tasks are to
// run again.
func (r *Runner) undoneState(ctx context.Context, plan *workflow.Plan, f *execution.Finished) ([]byte, error) {
	plan, state, err := r.Executions.Stored(ctx, f.TenantID, f.ID, plan, f.State)
	if err != nil {
		return nil, err
	}
	attempt := state.Attempt
	if _, _, err := engine.Reset(plan, state, nil); err != nil {
		return nil, err
	}
	state.Attempt = attempt
	text, err := state.JSON()
	if err != nil {
		return nil, fmt.Errorf("encode the state of execution %s: %w", f.ID, err)
	}
	return text, nil
}
