package process_test

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

	"tranche/internal/pgtest"
	"tranche/internal/process"
	"tranche/jobs"
)

// bundle is a database and a process that works, whose looks are recorded.
type bundle struct {
	pool   *pgxpool.Pool
	worker *process.Process
	looks  []process.Dead
	// refusal is what the next look fails with.
	refusal error
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{pool: pgtest.Pool(t)}
	b.worker = process.New(b.pool, b.free)
	return b
}

func (b *bundle) free(_ context.Context, _ pgx.Tx, dead process.Dead) (int64, error) {
	b.looks = append(b.looks, dead)
	return 0, b.refusal
}

func (b *bundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := b.pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// known inserts a process that was last heard of some time ago.
func (b *bundle) known(t *testing.T, silent time.Duration) uuid.UUID {
	t.Helper()
	id := uuid.New()
	b.exec(t, `INSERT INTO processes (id, role, heartbeat_at) VALUES ($1, 'all', now() - make_interval(secs => $2))`, id, silent.Seconds())
	return id
}

// killed inserts a process whose session has ended since it was last heard of, on a
// server that was up by then.
func (b *bundle) killed(t *testing.T) uuid.UUID {
	t.Helper()
	b.exec(t, `SELECT pg_sleep_until(GREATEST(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()) + interval '7 seconds')`)
	return b.known(t, 6*time.Second)
}

// held inserts a running job of each process and returns the executions they are about.
func (b *bundle) held(t *testing.T, holders ...uuid.UUID) (executions []uuid.UUID) {
	t.Helper()
	client, err := jobs.NewClient(b.pool, jobs.Config{ProcessID: uuid.New(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for _, holder := range holders {
		execution := uuid.New()
		job, err := client.Insert(t.Context(), jobs.TaskExecution{ExecutionID: execution}, nil)
		require.NoError(t, err)
		b.exec(t, `UPDATE river.river_job SET state = 'running', attempted_at = now(), attempted_by = $2 WHERE id = $1`, job.Job.ID, []string{uuid.NewString(), holder.String()})
		executions = append(executions, execution)
	}
	return executions
}

// job is the id of the job of an execution.
func (b *bundle) job(t *testing.T, execution uuid.UUID) (id int64) {
	t.Helper()
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT id FROM river.river_job WHERE args ->> 'execution_id' = $1`, execution.String()).Scan(&id))
	return id
}

// states are those of the jobs of executions.
func (b *bundle) states(t *testing.T, executions []uuid.UUID) (states []string) {
	t.Helper()
	for _, id := range executions {
		var state string
		require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT state FROM river.river_job WHERE args ->> 'execution_id' = $1`, id.String()).Scan(&state))
		states = append(states, state)
	}
	return states
}

func (b *bundle) isKnown(t *testing.T, id uuid.UUID) (is bool) {
	t.Helper()
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM processes WHERE id = $1)`, id).Scan(&is))
	return is
}

// A process is known until it stops; what it left is taken back with its row.
func TestProcessIsKnownWhileItLives(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, err := process.Start(t.Context(), b.pool, "api", false, b.free, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.True(t, b.isKnown(t, p.ID))

	b.refusal = context.DeadlineExceeded
	require.Error(t, p.Stop(t.Context()))
	require.True(t, b.isKnown(t, p.ID), "others find it dead")
	b.refusal = nil
	require.NoError(t, p.Stop(t.Context()))
	require.False(t, b.isKnown(t, p.ID))
	require.Equal(t, process.Dead{IDs: []uuid.UUID{p.ID}}, b.looks[1])
}

// Of three running jobs only the one of the dead process and the one of a
// process nobody knows are given back, and by who is steady alone.
func TestJobsOfDeadProcessesAreGivenBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alive, dead, unknown := b.known(t, 0), b.known(t, 21*time.Second), uuid.New()
	executions := b.held(t, alive, dead, unknown)

	require.NoError(t, b.worker.TakeBack(t.Context(), false))
	require.Equal(t, []string{"running", "running", "running"}, b.states(t, executions))
	require.Empty(t, b.looks)
	require.NoError(t, b.worker.TakeBack(t.Context(), true))
	require.Equal(t, []string{"running", "available", "available"}, b.states(t, executions))
	require.Len(t, b.looks, 1)
	require.True(t, b.looks[0].Unheard)
	require.ElementsMatch(t, executions[1:], b.looks[0].Resumed)

	again := b.held(t, unknown)
	require.NoError(t, b.worker.TakeBack(t.Context(), true))
	require.Equal(t, []string{"available"}, b.states(t, again), "jobs are given back without a look too")
	require.Len(t, b.looks, 1, "nothing gives cause for one")
}

// A process gives back the jobs that are its own by what the database says, and that it
// does not work on: not those that it works on, nor those that it was given just now.
func TestLostJobsAreGivenBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `INSERT INTO processes (id, role) VALUES ($1, 'all')`, b.worker.ID)
	executions := b.held(t, b.worker.ID, b.worker.ID, b.worker.ID)
	b.exec(t, `UPDATE river.river_job SET attempted_at = now() - interval '11 seconds' WHERE args ->> 'execution_id' <> $1`, executions[2].String())
	done := b.worker.WorksOn(b.job(t, executions[1]))

	require.NoError(t, b.worker.TakeBack(t.Context(), false))
	require.Equal(t, []string{"running", "running", "running"}, b.states(t, executions), "it may just have woken up")
	require.NoError(t, b.worker.TakeBack(t.Context(), true))
	require.Equal(t, []string{"available", "running", "running"}, b.states(t, executions))
	done()
	require.NoError(t, b.worker.TakeBack(t.Context(), true))
	require.Equal(t, []string{"available", "available", "running"}, b.states(t, executions), "nobody told what came of it")
}

// Who was only asleep and wakes when its job is another's does not end it: that one
// may die in its turn.
func TestWhoWasAsleepEndsNoJobOfAnother(t *testing.T) {
	t.Parallel()
	b := setup(t)
	began, wakes := make(chan struct{}), make(chan struct{})
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[jobs.TaskExecution]) error {
		began <- struct{}{}
		<-wakes
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(b.pool), &river.Config{
		ID: b.known(t, 21*time.Second).String(), Schema: jobs.Schema, Workers: workers,
		Queues: map[string]river.QueueConfig{jobs.QueueExecution: {MaxWorkers: 1}},
	})
	require.NoError(t, err)
	require.NoError(t, client.Start(t.Context()))
	execution := uuid.New()
	_, err = client.Insert(t.Context(), jobs.TaskExecution{ExecutionID: execution}, nil)
	require.NoError(t, err)
	<-began

	require.NoError(t, b.worker.TakeBack(t.Context(), true))
	require.Equal(t, []string{"available"}, b.states(t, []uuid.UUID{execution}))
	b.exec(t, `UPDATE river.river_job SET state = 'running', attempted_by = $1`, []string{b.known(t, 0).String()})
	close(wakes)
	require.NoError(t, client.Stop(t.Context()))
	require.Equal(t, []string{"running"}, b.states(t, []uuid.UUID{execution}))
}

// A process that is killed is found dead by the end of its session, before its
// heartbeat is old; one that lives or only just beat is not.
func TestEndOfSessionTellsDeath(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, err := process.Start(t.Context(), b.pool, "api", false, b.free, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop(context.WithoutCancel(t.Context()))) })
	killed, late := b.killed(t), b.known(t, time.Second)
	b.exec(t, `UPDATE processes SET heartbeat_at = now() - interval '10 seconds' WHERE id = $1`, p.ID)
	executions := b.held(t, p.ID, killed, late)

	require.NoError(t, b.worker.TakeBack(t.Context(), false))
	require.Equal(t, []string{"running", "available", "running"}, b.states(t, executions))
	require.Equal(t, []process.Dead{{IDs: []uuid.UUID{killed}, Resumed: executions[1:2]}}, b.looks)
	var isDead bool
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT heartbeat_at <= now() - interval '20 seconds' FROM processes WHERE id = $1`, killed).Scan(&isDead))
	require.True(t, isDead)
}

// What is found dead and what becomes of its work is one transaction: a look that
// fails is made again.
func TestDeathIsFoundAgainWhereTheLookFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	killed := b.killed(t)
	executions := b.held(t, killed)
	b.refusal = errors.New("the database is away")
	require.NoError(t, b.worker.TakeBack(t.Context(), false))
	require.Equal(t, []string{"running"}, b.states(t, executions))
	b.refusal = nil
	require.NoError(t, b.worker.TakeBack(t.Context(), false))
	require.Equal(t, []string{"available"}, b.states(t, executions))
	require.Len(t, b.looks, 2)
	require.Equal(t, b.looks[0], b.looks[1])
	require.NoError(t, b.worker.TakeBack(t.Context(), false))
	require.Len(t, b.looks, 2, "it is known to be dead")
}

// A look at dead processes that fails is no heartbeat that fails: the process has
// not been away, and believes the others dead as before.
func TestFailedLookLeavesAProcessSteady(t *testing.T) {
	t.Parallel()
	b := setup(t)
	t.Cleanup(func() { b.worker.EndSession(context.WithoutCancel(t.Context())) })
	b.worker.Turn(t.Context()) // from here on it has a session
	executions := b.held(t, uuid.New())
	b.worker.Beaten(0)
	b.worker.Turn(t.Context())
	require.Equal(t, []string{"available"}, b.states(t, executions))

	executions = b.held(t, uuid.New())
	b.exec(t, `ALTER TABLE river.river_job RENAME TO away`)
	b.worker.Beaten(process.AwayAfter - time.Second)
	b.worker.Turn(t.Context())
	time.Sleep(1100 * time.Millisecond)
	b.worker.Turn(t.Context())
	b.exec(t, `ALTER TABLE river.away RENAME TO river_job`)
	b.worker.Turn(t.Context())
	require.Equal(t, []string{"available"}, b.states(t, executions))
}

// Nobody looks while nobody dies; each death gives cause for a look at once, and a
// process whose row is as old as it may be is looked after before that is removed.
func TestLooks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alive, old := b.known(t, 0), b.known(t, 61*time.Minute)
	var knownThen bool
	worker := process.New(b.pool, func(ctx context.Context, tx pgx.Tx, dead process.Dead) (int64, error) {
		require.NoError(t, tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM processes WHERE id = $1)`, old).Scan(&knownThen))
		return b.free(ctx, tx, dead)
	})
	looks := func() int {
		before := len(b.looks)
		require.NoError(t, worker.TakeBack(t.Context(), true))
		return len(b.looks) - before
	}
	require.Equal(t, 1, looks(), "the first")
	require.True(t, knownThen)
	require.False(t, b.isKnown(t, old))
	require.Zero(t, looks())
	b.exec(t, `UPDATE processes SET heartbeat_at = clock_timestamp() - interval '20 seconds' WHERE id = $1`, alive)
	require.Equal(t, 1, looks(), "it has died")
	time.Sleep(20 * time.Millisecond)
	for range 2 { // one that died while that look was made may cause another
		looks()
	}
	require.Zero(t, looks())
	worker.LookNow()
	require.Equal(t, 1, looks(), "it is time")
	require.Zero(t, looks())
}
