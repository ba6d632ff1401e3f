package execution

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/queries"
)

const (
	// persistWaitMax bounds the pause between attempts to write what must not
	// be lost while the database is away.
	persistWaitMax = 5 * time.Second
)

// drive runs the execution until it has ended, waits, or cannot go on here. Its end is
// returned, to be written by the caller. Otherwise Finished is nil: a wait is recorded, and
// after an error the lease is given up.
func (r *run) drive(ctx context.Context) (*Finished, error) {
	defer r.releaseMemory()
	running := workflow.WithTenant(ctx, r.tenantID)
	if r.engine.Plan.Effects {
		var release func()
		running, release = r.service.held.add(running, r.id)
		defer release()
	}
	verdict, err := r.service.Runner.Drive(running, &r.engine, r.checkpoint)
	if interrupted(running) {
		return nil, errLeaseLost
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, errors.Join(errStopping, r.handOver(ctx))
		}
		return nil, r.giveUp(err)
	}
	if verdict.Outcome == nil {
		return nil, r.giveUp(r.suspend(ctx, verdict.WakeAt))
	}
	f, err := finished(r, verdict.Outcome)
	if err == nil && r.batchID == nil {
		// These are text now, which is a fraction of it, and may wait to be written.
		r.engine, f.Outcome.Output, f.Outcome.CustomOutput = engine.Run{}, nil, nil
	}
	return f, err
}

// checkpoint makes the state durable before effects begin.
func (r *run) checkpoint(ctx context.Context, state *engine.State) error {
	if r.request != nil {
		return r.record(ctx)
	}
	params, err := r.checkpointParams(state)
	if err != nil {
		return err
	}
	return r.persist(ctx, func(ctx context.Context) (int64, error) {
		return queries.New().ExecutionCheckpoint(ctx, queries.OnPartition(r.service.Pool, r.id), params)
	})
}

func (r *run) checkpointParams(state *engine.State) (queries.ExecutionCheckpointParams, error) {
	text, err := state.JSON()
	if err != nil {
		return queries.ExecutionCheckpointParams{}, fmt.Errorf("write the state of execution %s: %w", r.id, err)
	}
	params := queries.ExecutionCheckpointParams{TenantID: r.tenantID, ID: r.id, LeaseToken: r.token, State: text}
	params.TasksCompleted, params.TasksFailed = countTasks(state)
	return params, nil
}

func countTasks(state *engine.State) (completed, failed int32) {
	for _, task := range state.Tasks {
		switch task.Status { //nolint:exhaustive // only these two are counted
		case engine.StatusCompleted:
			completed++
		case engine.StatusFailed:
			failed++
		}
	}
	return completed, failed
}

// persist repeats a fenced write until it is done, the lease is lost or ctx
// ends: what an effect gave must survive the database's being away.
func (r *run) persist(ctx context.Context, write func(context.Context) (int64, error)) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, persistWaitMax) {
		rows, err := write(ctx)
		if err == nil && rows == 0 {
			return errLeaseLost
		}
		err = postgres.Translate(err)
		if err == nil || !errors.Is(err, fault.Unavailable) {
			return err
		}
		r.service.Log.WarnContext(ctx, "the state cannot be written, trying again", "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// record inserts the execution as running, leased to this process, with the
// state in which its first effects begin. It has no job: should this process die,
// it is found by its lease (TakeBack).
func (r *run) record(ctx context.Context) error {
	row, err := r.insertion(engine.StatusRunning)
	if err != nil {
		return err
	}
	if row.State, err = r.engine.State.JSON(); err != nil {
		return fmt.Errorf("write the state of execution %s: %w", r.id, err)
	}
	row.LeaseToken, row.LeaseProcessID = r.token, r.service.ProcessID
	row.StartedAt, row.DeadlineAt = r.engine.State.StartedAt, r.engine.State.Deadline
	if err := r.insert(ctx, row, r.ongoing()); err != nil {
		return r.unsure(err)
	}
	r.noteRecorded()
	return nil
}

// finish writes the end of an execution.
func (r *run) finish(ctx context.Context, f *Finished) error {
	if r.request != nil {
		return r.recordFinished(ctx, f)
	}
	err := r.persist(ctx, func(ctx context.Context) (int64, error) {
		return r.service.finishes.Write(ctx, laneOf(f.bytes()), f)
	})
	if err != nil && ctx.Err() != nil {
		return errors.Join(errStopping, r.handOver(ctx))
	}
	return r.giveUp(err)
}

// recordFinished inserts an execution that ended before anything of it had to
// be durable: one commit.
func (r *run) recordFinished(ctx context.Context, f *Finished) error {
	o := f.Outcome
	row, err := r.insertion(o.Status)
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
	r.noteRecorded()
	return nil
}

// suspend stores the state together with the job that goes on at wakeAt.
func (r *run) suspend(ctx context.Context, wakeAt time.Time) error {
	if r.request != nil {
		if err := r.record(ctx); err != nil {
			return err
		}
	}
	state, err := r.checkpointParams(r.engine.State)
	if err != nil {
		return err
	}
	return r.persist(ctx, func(ctx context.Context) (rows int64, err error) {
		err = postgres.InTx(ctx, r.service.Pool, func(tx pgx.Tx) error {
			rows, err = r.suspendTx(ctx, tx, wakeAt, state)
			return err
		})
		return rows, err
	})
}

func (r *run) suspendTx(ctx context.Context, tx pgx.Tx, wakeAt time.Time, state queries.ExecutionCheckpointParams) (rows int64, err error) {
	q := queries.New()
	if rows, err = q.ExecutionCheckpoint(ctx, tx, state); err != nil || rows == 0 {
		return rows, err
	}
	if wakeAt, err = r.wakeTx(ctx, tx, wakeAt); err != nil {
		return 0, err
	}
	return r.releaseTx(ctx, tx, wakeAt)
}
