package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/secret"
)

// newService connects the parts on a database, of which config names the owner, and
// signs off when the test ends.
func newService(t *testing.T, config Config) *Server {
	t.Helper()
	keys, err := secret.ParseKeys(secret.GenerateKey())
	require.NoError(t, err)
	config.DatabaseURL = pgtest.ServiceURL(t, config.DatabaseURL)
	config.BaseURL, config.Keys, config.Clock, config.Log = "http://127.0.0.1", keys, time.Now, slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := New(ctx, config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	return s
}

// A database that cannot be written, a standby for instance, takes no work.
func TestNotReadyWhileTheDatabaseIsReadOnly(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s := newService(t, Config{DatabaseURL: url, Role: RoleAPI})
	owner, err := pgtest.OpenPool(t, url).Acquire(t.Context()) // its session stays as it is
	require.NoError(t, err)
	defer owner.Release()
	becomes := func(readOnly string, status int, message string) {
		t.Helper()
		for _, statement := range []string{
			"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = " + readOnly + "', current_database()); END $$",
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
		} {
			_, err := owner.Exec(t.Context(), statement)
			require.NoError(t, err)
		}
		require.Eventually(t, func() bool {
			answer := httptest.NewRecorder()
			s.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
			return answer.Code == status && strings.Contains(answer.Body.String(), message)
		}, 10*time.Second, 20*time.Millisecond)
	}
	becomes("on", http.StatusServiceUnavailable, `"field":"database"`)
	becomes("off", http.StatusOK, "ok")
}

// A process whose look for what dead ones held, and whose metrics, wait for a lock, of a
// DBA's VACUUM FULL for instance, can answer requests all the same.
func TestReadyWhileTheQueueIsLocked(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s := newService(t, Config{DatabaseURL: url, Role: RoleWorker})
	owner := pgtest.OpenPool(t, url)
	tx, err := owner.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
	_, err = tx.Exec(t.Context(), "LOCK TABLE river.river_job")
	require.NoError(t, err)
	waits := func(n int) func() bool {
		return func() bool {
			var waiting int
			require.NoError(t, owner.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name = 'tranche control' AND wait_event_type = 'Lock'`).Scan(&waiting))
			return waiting == n
		}
	}
	require.Eventually(t, waits(1), 30*time.Second, 20*time.Millisecond)
	var metrics sync.WaitGroup
	defer metrics.Wait()
	metrics.Go(func() {
		s.metrics.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	})
	require.Eventually(t, waits(2), 4*time.Second, 20*time.Millisecond)
	answer := httptest.NewRecorder()
	s.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
}

// The first request after months in which nothing ran finds the partitions of its month.
func TestPartitionsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	owner := pgtest.OpenPool(t, url)
	for _, parent := range []string{"executions", "execution_payloads"} {
		_, err := owner.Exec(t.Context(), `DO $$ DECLARE p regclass; BEGIN
			FOR p IN SELECT inhrelid FROM pg_inherits WHERE inhparent = '`+parent+`'::regclass LOOP EXECUTE 'DROP TABLE ' || p; END LOOP; END $$`)
		require.NoError(t, err)
	}
	newService(t, Config{DatabaseURL: url, Role: RoleAPI})
	var partitions int
	require.NoError(t, owner.QueryRow(t.Context(), "SELECT count(*) FROM ops.partitions()").Scan(&partitions))
	require.Equal(t, 2*4, partitions, "this month's and three more, of executions and of their payloads")
}

// Partitions of later months wait for a dump of the database; a start does not.
func TestStartDoesNotWaitForPartitionsOfLaterMonths(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	owner := pgtest.OpenPool(t, url)
	_, err := owner.Exec(t.Context(), `DO $$ BEGIN
		PERFORM execution_partitions_provide(3); -- the test's database may have been made in another month
		EXECUTE 'DROP TABLE executions_' || to_char(now() AT TIME ZONE 'UTC' + interval '3 months', 'YYYYMM'); END $$`)
	require.NoError(t, err)
	dump, err := owner.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = dump.Rollback(context.Background()) }()
	_, err = dump.Exec(t.Context(), "LOCK executions IN ACCESS SHARE MODE")
	require.NoError(t, err)

	newService(t, Config{DatabaseURL: url, Role: RoleAPI})
}
