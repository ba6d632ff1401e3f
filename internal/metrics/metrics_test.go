package metrics_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"tranche/internal/metrics"
	"tranche/internal/pgtest"
)

func read(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, answer.Code)
	return answer.Body.String()
}

// A snoozed job has not failed.
func TestJobs(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	m.Job("k", nil, time.Second)
	m.Job("k", fmt.Errorf("later: %w", river.JobSnooze(time.Second)), time.Second)
	m.Job("k", errors.New("the database is away"), time.Second)
	m.Job("k", errors.New("the database is away"), time.Second)
	m.Job("k", river.JobCancel(errors.New("five times")), time.Second)
	got := read(t, m)
	require.Contains(t, got, `tranche_jobs_total{kind="k",outcome="done"} 1`)
	require.Contains(t, got, `tranche_jobs_total{kind="k",outcome="put_off"} 1`)
	require.Contains(t, got, `tranche_jobs_total{kind="k",outcome="failed"} 2`)
	require.Contains(t, got, `tranche_jobs_total{kind="k",outcome="given_up"} 1`)
	require.Contains(t, got, `tranche_job_duration_seconds_sum{kind="k"} 5`)
}

// If the database is away, the metrics can still be read and say so.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	m := metrics.New()
	m.WatchDatabase(pool, slog.New(slog.DiscardHandler))
	got := read(t, m)
	require.Contains(t, got, "\ntranche_database_up 1\n")
	require.Contains(t, got, "\ntranche_executions_open 0\n")

	pool.Close()
	got = read(t, m)
	require.Contains(t, got, "\ntranche_database_up 0\n")
	require.NotContains(t, got, "\ntranche_executions_open")
}

// The pool must be another one than that of WatchDatabase: Prometheus runs collectors
// concurrently, so WatchDatabase may use a connection while the pool is read.
func TestPool(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	m := metrics.New()
	m.Watch("p", pool)
	require.Contains(t, read(t, m), `tranche_pool_connections_used{pool="p"} 0`)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	require.Contains(t, read(t, m), `tranche_pool_connections_used{pool="p"} 1`)
	conn.Release()
	require.Contains(t, read(t, m), `tranche_pool_connections_used{pool="p"} 0`)
}

// The names follow the rules of Prometheus' own linter.
func TestNames(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	m := metrics.New()
	m.Watch("p", pool)
	m.WatchDatabase(pool, slog.New(slog.DiscardHandler))
	m.Request("GET", "/v1/executions", http.StatusOK, time.Second)
	m.Job("k", nil, time.Second)
	m.Call("2xx", time.Second)
	m.Executions("completed", 1)
	problems, err := promlint.New(strings.NewReader(read(t, m))).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}
