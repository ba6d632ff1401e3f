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

// newServer creates a process on the database of config, as the service's user. It stops
// when the test ends.
func newServer(t *testing.T, config Config) *Server {
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

func (s *Server) readyz() *httptest.ResponseRecorder {
	response := httptest.NewRecorder()
	s.Handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
	return response
}

// A process is not ready while its database is read-only, as a standby is.
func TestReadinessOnReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s := newServer(t, Config{DatabaseURL: url, Role: RoleAPI})
	owner, err := pgtest.OpenPool(t, url).Acquire(t.Context()) // this session stays writable
	require.NoError(t, err)
	defer owner.Release()
	for _, c := range []struct {
		readOnly string
		status   int
		body     string
	}{
		{"on", http.StatusServiceUnavailable, `"field":"database"`},
		{"off", http.StatusOK, "ok"},
	} {
		pgtest.Exec(t, owner, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = "+c.readOnly+"', current_database()); END $$")
		pgtest.TerminateSessions(t, owner)
		pgtest.WaitFor(t, "read-only "+c.readOnly, func() bool {
			response := s.readyz()
			return response.Code == c.status && strings.Contains(response.Body.String(), c.body)
		})
	}
}

// The failure detector and the metrics of a process wait for a lock, for example during
// VACUUM FULL. The process is ready nevertheless.
func TestReadinessWhileQueueIsLocked(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s := newServer(t, Config{DatabaseURL: url, Role: RoleWorker})
	owner := pgtest.OpenPool(t, url)
	tx, err := owner.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
	_, err = tx.Exec(t.Context(), "LOCK TABLE river.river_job")
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	var metrics sync.WaitGroup
	defer metrics.Wait()
	defer cancel()
	metrics.Go(func() {
		for ctx.Err() == nil { // each request waits only for a few seconds
			s.metrics.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", http.NoBody))
		}
	})
	pgtest.WaitForCount(t, owner, 2, "pg_stat_activity", "datname = current_database() AND application_name = 'tranche control' AND wait_event_type = 'Lock'")
	response := s.readyz()
	require.Equal(t, http.StatusOK, response.Code, response.Body)
}

// After months without a process, a start creates the partition of the current month
// before the first request.
func TestStartCreatesPartitions(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	owner := pgtest.OpenPool(t, url)
	for _, parent := range []string{"executions", "execution_payloads"} {
		pgtest.Exec(t, owner, `DO $$ DECLARE p regclass; BEGIN
			FOR p IN SELECT inhrelid FROM pg_inherits WHERE inhparent = '`+parent+`'::regclass LOOP EXECUTE 'DROP TABLE ' || p; END LOOP; END $$`)
	}
	newServer(t, Config{DatabaseURL: url, Role: RoleAPI})
	require.Equal(t, 2*4, pgtest.Count(t, owner, "ops.partitions()", ""), "this month and three more, of executions and payloads")
}

// A dump of the database delays the partitions of later months, but not a start.
func TestStartDuringDump(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	owner := pgtest.OpenPool(t, url)
	pgtest.Exec(t, owner, `DO $$ BEGIN
		PERFORM execution_partitions_provide(3); -- the test's database may be from another month
		EXECUTE 'DROP TABLE executions_' || to_char(now() AT TIME ZONE 'UTC' + interval '3 months', 'YYYYMM'); END $$`)
	dump, err := owner.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = dump.Rollback(context.Background()) }()
	_, err = dump.Exec(t.Context(), "LOCK executions IN ACCESS SHARE MODE")
	require.NoError(t, err)

	newServer(t, Config{DatabaseURL: url, Role: RoleAPI})
}
