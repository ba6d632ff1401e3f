package jobs_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/jobs"
)

// A job that may run at once is dated by the database, which is asked whether it may;
// one for later has the time that was asked for.
func TestJobsAreDatedByTheDatabase(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client, err := jobs.NewClient(pool, jobs.Config{ProcessID: pgtest.NewID(t), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	later := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		var now time.Time
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT now()`).Scan(&now))
		job := jobs.TaskExecution{TenantID: pgtest.NewID(t), ExecutionID: pgtest.NewID(t)}
		one, err := client.InsertTx(t.Context(), tx, job, nil)
		require.NoError(t, err)
		many, err := client.InsertManyTx(t.Context(), tx, []river.InsertManyParams{{Args: job}, {Args: job, InsertOpts: &river.InsertOpts{ScheduledAt: later}}})
		require.NoError(t, err)
		require.True(t, now.Equal(one.Job.ScheduledAt), "%s, not %s", one.Job.ScheduledAt, now)
		require.True(t, now.Equal(one.Job.CreatedAt))
		require.True(t, now.Equal(many[0].Job.ScheduledAt))
		require.True(t, later.Equal(many[1].Job.ScheduledAt))
		return nil
	}))
}
