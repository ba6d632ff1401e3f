package liveness_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"tranche/internal/liveness"
	"tranche/internal/pgtest"
	"tranche/jobs"
)

// bundle is a database and a process that works. It records the sweeps of the process.
type bundle struct {
	pool   *pgxpool.Pool
	worker *liveness.Process
	sweeps []liveness.Dead
	// sweepErr is the error of the next sweeps.
	sweepErr error
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{pool: pgtest.Pool(t)}
	b.worker = liveness.New(b.pool, b.recoverWork)
	return b
}

func (b *bundle) recoverWork(_ context.Context, _ pgx.Tx, dead liveness.Dead) (int64, error) {
	b.sweeps = append(b.sweeps, dead)
	return 0, b.sweepErr
}

func (b *bundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := b.pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// process inserts a process whose last heartbeat has the given age.
func (b *bundle) process(t *testing.T, age time.Duration) uuid.UUID {
	t.Helper()
	id := uuid.New()
	b.exec(t, `INSERT INTO processes (id, role, heartbeat_at) VALUES ($1, 'all', now() - make_interval(secs => $2))`, id, age.Seconds())
	return id
}

// killedProcess inserts a process whose session has ended after its last heartbeat. The
// server has not restarted since then.
func (b *bundle) killedProcess(t *testing.T) uuid.UUID {
	t.Helper()
	b.awaitUptime(t)
	return b.process(t, 6*time.Second)
}

// awaitUptime waits until a heartbeat of 6 s ago is later than the start of the server.
func (b *bundle) awaitUptime(t *testing.T) {
	t.Helper()
	b.exec(t, `SELECT pg_sleep_until(GREATEST(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()) + interval '7 seconds')`)
}

// runningJobs inserts a running job of each process and returns the jobs' executions.
func (b *bundle) runningJobs(t *testing.T, processes ...uuid.UUID) (executions []uuid.UUID) {
	t.Helper()
	client, err := jobs.NewClient(b.pool, jobs.Config{ProcessID: uuid.New(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for _, process := range processes {
		execution := uuid.New()
		job, err := client.Insert(t.Context(), jobs.TaskExecution{ExecutionID: execution}, nil)
		require.NoError(t, err)
		b.exec(t, `UPDATE river.river_job SET state = 'running', attempted_at = now(), attempted_by = $2 WHERE id = $1`, job.Job.ID, []string{uuid.NewString(), process.String()})
		executions = append(executions, execution)
	}
	return executions
}

// jobID returns the id of the job of an execution.
func (b *bundle) jobID(t *testing.T, execution uuid.UUID) (id int64) {
	t.Helper()
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT id FROM river.river_job WHERE args ->> 'execution_id' = $1`, execution.String()).Scan(&id))
	return id
}

// jobStates returns the states of the jobs of executions.
func (b *bundle) jobStates(t *testing.T, executions []uuid.UUID) (states []string) {
	t.Helper()
	for _, id := range executions {
		var state string
		require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT state FROM river.river_job WHERE args ->> 'execution_id' = $1`, id.String()).Scan(&state))
		states = append(states, state)
	}
	return states
}

func (b *bundle) hasRow(t *testing.T, id uuid.UUID) (is bool) {
	t.Helper()
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM processes WHERE id = $1)`, id).Scan(&is))
	return is
}

// Stop deletes the row and recovers the work of the process in one transaction.
func TestStop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, err := liveness.Start(t.Context(), b.pool, "api", false, b.recoverWork, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.True(t, b.hasRow(t, p.ID))

	b.sweepErr = context.DeadlineExceeded
	require.Error(t, p.Stop(t.Context()))
	require.True(t, b.hasRow(t, p.ID), "the other processes find it dead")
	b.sweepErr = nil
	require.NoError(t, p.Stop(t.Context()))
	require.False(t, b.hasRow(t, p.ID))
	require.Equal(t, liveness.Dead{IDs: []uuid.UUID{p.ID}}, b.sweeps[1])
}

// A steady process requeues the jobs of dead and of unknown processes.
func TestRequeueOfAbandonedJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alive, dead, unknown := b.process(t, 0), b.process(t, 21*time.Second), uuid.New()
	executions := b.runningJobs(t, alive, dead, unknown)

	require.NoError(t, b.worker.Detect(t.Context(), false))
	require.Equal(t, []string{"running", "running", "running"}, b.jobStates(t, executions))
	require.Empty(t, b.sweeps)
	require.NoError(t, b.worker.Detect(t.Context(), true))
	require.Equal(t, []string{"running", "available", "available"}, b.jobStates(t, executions))
	require.Len(t, b.sweeps, 1)
	require.True(t, b.sweeps[0].Expired)
	require.ElementsMatch(t, executions[1:], b.sweeps[0].Requeued)

	again := b.runningJobs(t, unknown)
	require.NoError(t, b.worker.Detect(t.Context(), true))
	require.Equal(t, []string{"available"}, b.jobStates(t, again), "between two sweeps")
	require.Len(t, b.sweeps, 1, "no process died")
}

// A process requeues its own jobs that it does not run, unless River has just assigned them.
func TestRequeueOfLostJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO processes (id, role) VALUES ($1, 'all')`, b.worker.ID)
	executions := b.runningJobs(t, b.worker.ID, b.worker.ID, b.worker.ID)
	b.exec(t, `UPDATE river.river_job SET attempted_at = now() - interval '11 seconds' WHERE args ->> 'execution_id' <> $1`, executions[2].String())
	done := b.worker.TrackJob(b.jobID(t, executions[1]))

	require.NoError(t, b.worker.Detect(t.Context(), false))
	require.Equal(t, []string{"running", "running", "running"}, b.jobStates(t, executions), "the process is not steady")
	require.NoError(t, b.worker.Detect(t.Context(), true))
	require.Equal(t, []string{"available", "running", "running"}, b.jobStates(t, executions))
	done()
	require.NoError(t, b.worker.Detect(t.Context(), true))
	require.Equal(t, []string{"available", "available", "running"}, b.jobStates(t, executions), "the end of the job was not recorded")
}

// A suspended process that continues does not complete its former job, because another
// process may run it and die.
func TestSuspendedProcessCannotCompleteFormerJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	began, resume := make(chan struct{}), make(chan struct{})
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[jobs.TaskExecution]) error {
		began <- struct{}{}
		<-resume
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(b.pool), &river.Config{
		ID: b.process(t, 21*time.Second).String(), Schema: jobs.Schema, Workers: workers,
		Queues: map[string]river.QueueConfig{jobs.QueueExecution: {MaxWorkers: 1}},
	})
	require.NoError(t, err)
	require.NoError(t, client.Start(t.Context()))
	execution := uuid.New()
	_, err = client.Insert(t.Context(), jobs.TaskExecution{ExecutionID: execution}, nil)
	require.NoError(t, err)
	<-began

	require.NoError(t, b.worker.Detect(t.Context(), true))
	require.Equal(t, []string{"available"}, b.jobStates(t, []uuid.UUID{execution}))
	b.exec(t, `UPDATE river.river_job SET state = 'running', attempted_by = $1`, []string{b.process(t, 0).String()})
	close(resume)
	require.NoError(t, client.Stop(t.Context()))
	require.Equal(t, []string{"running"}, b.jobStates(t, []uuid.UUID{execution}))
}

// A killed process is dead as soon as its session has ended. A process with a session is
// alive, and so is one with a recent heartbeat.
func TestDetectionByEndOfSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, err := liveness.Start(t.Context(), b.pool, "api", false, b.recoverWork, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop(context.WithoutCancel(t.Context()))) })
	killed, late := b.killedProcess(t), b.process(t, time.Second)
	b.exec(t, `UPDATE processes SET heartbeat_at = now() - interval '10 seconds' WHERE id = $1`, p.ID)
	executions := b.runningJobs(t, p.ID, killed, late)

	require.NoError(t, b.worker.Detect(t.Context(), false))
	require.Equal(t, []string{"running", "available", "running"}, b.jobStates(t, executions))
	require.Equal(t, []liveness.Dead{{IDs: []uuid.UUID{killed}, Requeued: executions[1:2]}}, b.sweeps)
	var isDead bool
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT heartbeat_at <= now() - interval '20 seconds' FROM processes WHERE id = $1`, killed).Scan(&isDead))
	require.True(t, isDead)
}

// A sweep that fails is repeated, because it marks processes dead in the same transaction.
func TestSweepRetry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	killed := b.killedProcess(t)
	executions := b.runningJobs(t, killed)
	b.sweepErr = errors.New("the database is away")
	require.NoError(t, b.worker.Detect(t.Context(), false))
	require.Equal(t, []string{"running"}, b.jobStates(t, executions))
	b.sweepErr = nil
	require.NoError(t, b.worker.Detect(t.Context(), false))
	require.Equal(t, []string{"available"}, b.jobStates(t, executions))
	require.Len(t, b.sweeps, 2)
	require.Equal(t, b.sweeps[0], b.sweeps[1])
	require.NoError(t, b.worker.Detect(t.Context(), false))
	require.Len(t, b.sweeps, 2, "the process is marked dead")
}

// A failed search for dead processes does not make a process unsteady.
func TestProcessStaysSteadyAfterFailedDetection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	t.Cleanup(func() { b.worker.EndSession(context.WithoutCancel(t.Context())) })
	b.worker.Tick(t.Context()) // opens the session
	executions := b.runningJobs(t, uuid.New())
	b.worker.SetHeartbeatAge(0)
	b.worker.Tick(t.Context())
	require.Equal(t, []string{"available"}, b.jobStates(t, executions))

	executions = b.runningJobs(t, uuid.New())
	b.exec(t, `ALTER TABLE river.river_job RENAME TO away`)
	b.worker.SetHeartbeatAge(liveness.AwayAfter - time.Second)
	b.worker.Tick(t.Context())
	time.Sleep(1100 * time.Millisecond)
	b.worker.Tick(t.Context())
	b.exec(t, `ALTER TABLE river.away RENAME TO river_job`)
	b.worker.Tick(t.Context())
	require.Equal(t, []string{"available"}, b.jobStates(t, executions))
}

// There is a sweep when a process died and when the interval has passed. A sweep recovers
// the work of a process before it deletes the row.
func TestSweepTimes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alive, old := b.process(t, 0), b.process(t, 61*time.Minute)
	var hadRow bool
	worker := liveness.New(b.pool, func(ctx context.Context, tx pgx.Tx, dead liveness.Dead) (int64, error) {
		require.NoError(t, tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM processes WHERE id = $1)`, old).Scan(&hadRow))
		return b.recoverWork(ctx, tx, dead)
	})
	sweeps := func() int {
		before := len(b.sweeps)
		require.NoError(t, worker.Detect(t.Context(), true))
		return len(b.sweeps) - before
	}
	require.Equal(t, 1, sweeps(), "first")
	require.True(t, hadRow)
	require.False(t, b.hasRow(t, old))
	require.Zero(t, sweeps())
	b.exec(t, `UPDATE processes SET heartbeat_at = clock_timestamp() - interval '20 seconds' WHERE id = $1`, alive)
	require.Equal(t, 1, sweeps(), "a process died")
	time.Sleep(20 * time.Millisecond)
	for range 2 { // a process that died during that sweep may cause another
		sweeps()
	}
	require.Zero(t, sweeps())
	worker.MakeSweepDue()
	require.Equal(t, 1, sweeps(), "the interval has passed")
	require.Zero(t, sweeps())
}
