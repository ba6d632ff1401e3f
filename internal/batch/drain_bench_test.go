package batch_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/jobs"
)

type nothing struct{}

func (nothing) Kind() string { return "nothing" }

type doNothing struct{ river.WorkerDefaults[nothing] }

func (*doNothing) Work(context.Context, *river.Job[nothing]) error { return nil }

// BenchmarkRiverDrain is what the others are to be compared with: River's jobs
// that do nothing, 500 at a time, inserted beforehand.
func BenchmarkRiverDrain(b *testing.B) {
	if b.N < 1000 {
		return // the try that the testing package begins with
	}
	pool := pgtest.Pool(b)
	workers := river.NewWorkers()
	river.AddWorker(workers, &doNothing{})
	client, err := river.NewClient[pgx.Tx](riverpgxv5.New(pool), &river.Config{
		ID: uuid.NewString(), Schema: jobs.Schema, Workers: workers, Logger: slog.New(slog.DiscardHandler), FetchCooldown: 5 * time.Millisecond,
		Queues:              map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 500}},
		ReindexerIndexNames: []string{"river_job_prioritized_fetching_index"},
	})
	require.NoError(b, err)
	for left := b.N; left > 0; left -= 5000 {
		inserts := make([]river.InsertManyParams, min(left, 5000))
		for i := range inserts {
			inserts[i].Args = nothing{}
		}
		_, err := client.InsertManyFast(b.Context(), inserts)
		require.NoError(b, err)
	}
	b.ResetTimer()
	require.NoError(b, client.Start(b.Context()))
	for left := 1; left > 0; time.Sleep(20 * time.Millisecond) {
		require.NoError(b, pool.QueryRow(b.Context(), "SELECT count(*) FROM river.river_job WHERE kind = 'nothing' AND state <> 'completed'").Scan(&left))
	}
	b.StopTimer()
	require.NoError(b, client.Stop(b.Context()))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
