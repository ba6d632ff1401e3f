package process_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/process"
	"tranche/jobs"
	"tranche/queries"
)

func TestProcessIsKnownWhileItLives(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	p, err := process.Start(t.Context(), pool, "all", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	known := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM processes WHERE id = $1 AND role = 'all'`, p.ID).Scan(&n))
		return n
	}
	require.Equal(t, 1, known())
	require.NoError(t, p.Stop(t.Context()))
	require.Equal(t, 0, known())
}

// Of three running jobs only the one of the dead process and the one of a
// process nobody knows are given back.
func TestJobsOfDeadProcessesAreGivenBack(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client, err := jobs.NewClient(pool, jobs.Config{ProcessID: uuid.New(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	alive, dead, unknown := uuid.New(), uuid.New(), uuid.New()
	exec := func(sql string, args ...any) {
		_, err := pool.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	exec(`INSERT INTO processes (id, role, heartbeat_at) VALUES ($1, 'all', now()), ($2, 'worker', now() - interval '21 seconds')`, alive, dead)
	held := map[uuid.UUID]int64{}
	for _, holder := range []uuid.UUID{alive, dead, unknown} {
		job, err := client.Insert(context.Background(), jobs.TaskExecution{ExecutionID: uuid.New()}, nil)
		require.NoError(t, err)
		held[holder] = job.Job.ID
		exec(`UPDATE river.river_job SET state = 'running', attempted_by = $2 WHERE id = $1`, job.Job.ID, []string{uuid.NewString(), holder.String()})
	}

	n, err := queries.New().SysJobsOfDeadProcesses(t.Context(), pool, process.DeadAfter.Seconds())
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	for holder, want := range map[uuid.UUID]string{alive: "running", dead: "available", unknown: "available"} {
		var state string
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT state FROM river.river_job WHERE id = $1`, held[holder]).Scan(&state))
		require.Equal(t, want, state)
	}
}

// A process that is killed is found dead by the end of its session, before its
// heartbeat is old; one that lives or only just beat is not.
func TestEndOfSessionTellsDeath(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	p, err := process.Start(t.Context(), pool, "api", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop(context.WithoutCancel(t.Context()))) })
	client, err := jobs.NewClient(pool, jobs.Config{ProcessID: uuid.New(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	killed, late := uuid.New(), uuid.New()
	_, err = pool.Exec(t.Context(), `INSERT INTO processes (id, role, heartbeat_at) VALUES ($1, 'all', now() - interval '6 seconds'), ($2, 'worker', now() - interval '1 second')`, killed, late)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `UPDATE processes SET heartbeat_at = now() - interval '10 seconds' WHERE id = $1`, p.ID)
	require.NoError(t, err)
	held := map[uuid.UUID]int64{}
	for _, holder := range []uuid.UUID{p.ID, killed, late} {
		job, err := client.Insert(t.Context(), jobs.TaskExecution{ExecutionID: uuid.New()}, nil)
		require.NoError(t, err)
		held[holder] = job.Job.ID
		_, err = pool.Exec(t.Context(), `UPDATE river.river_job SET state = 'running', attempted_by = $2 WHERE id = $1`, job.Job.ID, []string{holder.String()})
		require.NoError(t, err)
	}
	find := func(databaseUp float64) int64 {
		n, err := queries.New().SysJobsOfEndedSessions(t.Context(), pool, queries.SysJobsOfEndedSessionsParams{
			SilentSeconds: 5, DeadAfterSeconds: process.DeadAfter.Seconds(), DatabaseUpSeconds: databaseUp,
		})
		require.NoError(t, err)
		return n
	}
	require.Zero(t, find(1e9), "the database was started since")
	require.EqualValues(t, 1, find(0))
	for holder, want := range map[uuid.UUID]string{p.ID: "running", killed: "available", late: "running"} {
		var state string
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT state FROM river.river_job WHERE id = $1`, held[holder]).Scan(&state))
		require.Equal(t, want, state)
	}
	var isDead bool
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT heartbeat_at <= now() - interval '20 seconds' FROM processes WHERE id = $1`, killed).Scan(&isDead))
	require.True(t, isDead)
}
