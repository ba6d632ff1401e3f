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
