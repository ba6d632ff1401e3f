package execution

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"tranche/internal/engine"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/jobs"
	"tranche/queries"
)

const (
	// persistWaitMax bounds the pause between attempts to write while the database is
	// unavailable.
	persistWaitMax = 5 * time.Second
	// handOverTimeMax bounds the writes that hand executions over when the process stops.
	handOverTimeMax = 5 * time.Second
	// lateReleaseWaitMin and lateReleaseWaitMax bound the doubling pauses between attempts
	// to release a lease whose commit was not acknowledged. The attempts go on for a
	// quarter of an hour; the server ends a statement after half a minute.
	lateReleaseWaitMin = time.Second
	lateReleaseWaitMax = 10 * time.Minute
)

// lease is the right of this process to write a running execution. Every write names the
// token. If the row has another token, the write changes nothing (errLeaseLost).
type lease struct {
	tenantID, executionID, token uuid.UUID
	// hasJob is set if a job continues the execution after the lease is released. If not,
	// the release inserts one.
	hasJob bool
}

func (l lease) tenant() uuid.UUID { return l.tenantID }

// persist repeats a fenced write until it succeeds, the lease is lost or ctx ends. The
// result of an effect must survive a database that is unavailable.
func (s *Service) persist(ctx context.Context, write func(context.Context) (int64, error)) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, persistWaitMax) {
		rows, err := write(ctx)
		if err == nil && rows == 0 {
			return errLeaseLost
		}
		err = postgres.Translate(err)
		if err == nil || !errors.Is(err, fault.Unavailable) {
			return err
		}
		s.Log.WarnContext(ctx, "cannot write the state of an execution; trying again", "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// checkpoint stores the state of a leased execution.
func (s *Service) checkpoint(ctx context.Context, l lease, state *engine.State) error {
	params, err := checkpointParams(l, state)
	if err != nil {
		return err
	}
	return s.persist(ctx, func(ctx context.Context) (int64, error) {
		return queries.New().ExecutionCheckpoint(ctx, queries.OnPartition(s.Pool, l.executionID), params)
	})
}

func checkpointParams(l lease, state *engine.State) (queries.ExecutionCheckpointParams, error) {
	text, err := state.JSON()
	if err != nil {
		return queries.ExecutionCheckpointParams{}, fmt.Errorf("write the state of execution %s: %w", l.executionID, err)
	}
	params := queries.ExecutionCheckpointParams{TenantID: l.tenantID, ID: l.executionID, LeaseToken: l.token, State: text}
	params.TasksCompleted, params.TasksFailed = countTasks(state)
	return params, nil
}

// suspend stores the state of a leased run that waits, releases the lease, and inserts the
// job that continues at wakeAt.
func (r *run) suspend(ctx context.Context, wakeAt time.Time) error {
	state, err := checkpointParams(r.lease, r.engine.State)
	if err != nil {
		return err
	}
	return r.service.persist(ctx, func(ctx context.Context) (rows int64, err error) {
		err = postgres.InTx(ctx, r.service.Pool, func(tx pgx.Tx) error {
			rows, err = r.suspendTx(ctx, tx, wakeAt, state)
			return err
		})
		return rows, err
	})
}

func (r *run) suspendTx(ctx context.Context, tx pgx.Tx, wakeAt time.Time, state queries.ExecutionCheckpointParams) (rows int64, err error) {
	if rows, err = queries.New().ExecutionCheckpoint(ctx, tx, state); err != nil || rows == 0 {
		return rows, err
	}
	if wakeAt, err = r.wakeTx(ctx, tx, wakeAt); err != nil {
		return 0, err
	}
	return r.service.releaseTx(ctx, tx, r.lease, wakeAt)
}

// wakeTx returns when the job of a suspended execution is due: at once if a signal came
// after the engine was last told of signals. tx has locked the execution.
func (r *run) wakeTx(ctx context.Context, tx pgx.Tx, wakeAt time.Time) (time.Time, error) {
	if len(engine.Waits(r.engine.Plan, r.engine.State)) == 0 {
		return wakeAt, nil
	}
	count, err := queries.New().ExecutionSignalCount(ctx, tx, queries.ExecutionSignalCountParams{
		TenantID: r.tenantID, ExecutionID: r.id, Attempt: int32(r.engine.State.Attempt),
	})
	if err != nil || count == r.signalsSeen {
		return wakeAt, err
	}
	return time.Time{}, nil
}

// finish writes the end of a leased execution.
func (s *Service) finish(ctx context.Context, l lease, f *Finished) error {
	err := s.persist(ctx, func(ctx context.Context) (int64, error) {
		return s.finishes.Write(ctx, laneOf(f.bytes()), f)
	})
	if err != nil && ctx.Err() != nil {
		return errors.Join(errStopping, s.handOver(ctx, l))
	}
	s.abandon(l, err)
	return err
}

// requeue releases a lease and inserts a job that is due at once. Concurrent calls share a
// statement, which skips executions that another transaction locks; those are written one
// by one.
func (s *Service) requeue(ctx context.Context, l lease) (rows int64, err error) {
	rows, err = s.releases.Write(ctx, smallItems, l)
	if err != nil || rows > 0 {
		return rows, err
	}
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		rows, err = s.releaseTx(ctx, tx, l, time.Time{})
		return err
	})
	return rows, err
}

// releaseTx releases a lease and inserts a job that is due at the given time; zero is now.
func (s *Service) releaseTx(ctx context.Context, tx pgx.Tx, l lease, at time.Time) (rows int64, err error) {
	rows, err = queries.New().ExecutionRelease(ctx, tx, queries.ExecutionReleaseParams{TenantID: l.tenantID, ID: l.executionID, LeaseToken: l.token})
	if err != nil || rows == 0 {
		return rows, err
	}
	_, err = s.Jobs.InsertTx(ctx, tx, jobs.TaskExecution{TenantID: l.tenantID, ExecutionID: l.executionID}, &river.InsertOpts{ScheduledAt: at})
	return rows, err
}

// release releases a lease, for the next attempt of its job or together with a new job. It
// tries until the database is available.
func (s *Service) release(ctx context.Context, l lease) error {
	ctx = postgres.WithTenant(ctx, l.tenantID)
	return s.persist(ctx, func(ctx context.Context) (int64, error) {
		if !l.hasJob {
			return s.requeue(ctx, l)
		}
		return queries.New().ExecutionReleaseForRetry(ctx, queries.OnPartition(s.Pool, l.executionID), queries.ExecutionReleaseForRetryParams{
			TenantID: l.tenantID, ID: l.executionID, LeaseToken: l.token,
		})
	})
}

// abandon releases a lease in the background after an error, unless the lease is lost.
func (s *Service) abandon(l lease, err error) {
	if err != nil && !errors.Is(err, errLeaseLost) {
		s.running.Go(func() { _ = s.release(s.life, l) })
	}
}

// handOver inserts a job that continues an execution at once, while the process stops.
func (s *Service) handOver(ctx context.Context, l lease) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handOverTimeMax)
	defer cancel()
	_, err := s.requeue(ctx, l)
	return postgres.Translate(err)
}

// releaseUnacknowledged returns the error of a write that was to take a lease. The commit
// may have succeeded, or may succeed later; then nobody would continue the execution while
// this process lives. So the lease is released in the background.
func (s *Service) releaseUnacknowledged(l lease, err error) error {
	mayCommit := errors.Is(postgres.Translate(err), fault.Unavailable) || errors.Is(err, fault.ErrPanic) ||
		postgres.IsDuplicate(err) /* of the same row, written again */ || errors.Is(err, context.Canceled)
	if mayCommit && !postgres.Unsent(err) {
		go s.releaseLate(s.life, l)
	}
	return err
}

// releaseLate releases a lease that may appear for a while. If the process ends first, the
// failure detector finds the lease.
func (s *Service) releaseLate(ctx context.Context, l lease) {
	for wait := lateReleaseWaitMin; wait < lateReleaseWaitMax; wait *= 2 {
		if err := s.release(ctx, l); !errors.Is(err, errLeaseLost) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// Release releases the lease of a finished item that could not be written, so that its job
// can try again. It does nothing while the process stops: until the process ends, the item
// may still be written, and afterwards another process takes it over.
func (s *Service) Release(ctx context.Context, f *Finished) {
	if f.LeaseToken == uuid.Nil || ctx.Err() != nil {
		return
	}
	s.running.Go(func() {
		_ = s.release(s.life, lease{tenantID: f.TenantID, executionID: f.ID, token: f.LeaseToken, hasJob: true})
	})
}
