package service

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/postgres"
	"tranche/internal/seal"
)

// Batches run on the one side and callers come to the other.
func TestBothSidesKnowTheCallers(t *testing.T) {
	t.Parallel()
	keys, err := seal.Parse(seal.Generate())
	require.NoError(t, err)
	s, err := New(t.Context(), Config{
		DatabaseURL: pgtest.ServiceURL(t, pgtest.URL(t)), Role: RoleAll, BaseURL: "http://127.0.0.1", Keys: keys,
		Clock: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	require.Same(t, s.parts.requests.executions.Callers, s.parts.background.executions.Callers)
}

// The threads of the process know what there is to do: requests and jobs, and what
// executions add to them.
func TestThreadsAreToldOfRequestsAndJobs(t *testing.T) {
	t.Parallel()
	keys, err := seal.Parse(seal.Generate())
	require.NoError(t, err)
	const most = 3
	s, err := New(t.Context(), Config{
		DatabaseURL: pgtest.ServiceURL(t, pgtest.URL(t)), Role: RoleAll, BaseURL: "http://127.0.0.1", Keys: keys,
		ThreadsMax: most, Clock: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	threadsAre := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { return runtime.GOMAXPROCS(0) == n }, 30*time.Second, time.Millisecond)
	}
	threadsAre(1)

	var handlers sync.WaitGroup
	serve := func(announced int64) (end func()) {
		read, write := io.Pipe()
		request := httptest.NewRequest(http.MethodPost, "/identity/resources/auth/v1/api-token", read)
		request.ContentLength = announced
		handlers.Go(func() { s.Handler().ServeHTTP(httptest.NewRecorder(), request) })
		_, err := write.Write([]byte(" ")) // until it is read
		require.NoError(t, err)
		return func() { _ = write.Close() }
	}
	first := serve(largeBodyBytes)
	time.Sleep(10 * time.Millisecond)
	require.Equal(t, 1, runtime.GOMAXPROCS(0), "alone")
	second := serve(1)
	threadsAre(most)
	first()
	second()
	handlers.Wait()
	threadsAre(1)

	for _, announced := range []int64{largeBodyBytes + 1, -1} {
		end := serve(announced)
		threadsAre(most)
		end()
		handlers.Wait()
		threadsAre(1)
	}

	require.NoError(t, s.Start(t.Context()))
	time.Sleep(100 * time.Millisecond)
	threadsAre(1)
	_, err = s.pools.Queue.Exec(postgres.AsSystem(t.Context()), `INSERT INTO river.river_job (kind, queue, max_attempts, args)
		VALUES ('task_execution', 'execution', 1, jsonb_build_object('tenant_id', gen_random_uuid(), 'execution_id', gen_random_uuid()))`)
	require.NoError(t, err)
	threadsAre(most)
	threadsAre(1)
	require.Same(t, s.threads, s.parts.requests.executions.Runner.Threads)
	require.Same(t, s.threads, s.parts.background.executions.Runner.Threads)
}

// A database that cannot be written, a standby for instance, takes no work.
func TestNotReadyWhileTheDatabaseIsReadOnly(t *testing.T) {
	t.Parallel()
	keys, err := seal.Parse(seal.Generate())
	require.NoError(t, err)
	url := pgtest.URL(t)
	s, err := New(t.Context(), Config{
		DatabaseURL: pgtest.ServiceURL(t, url), Role: RoleAPI, BaseURL: "http://127.0.0.1", Keys: keys,
		Clock: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
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

// The first request after months in which nothing ran finds the partitions of its month.
func TestPartitionsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	keys, err := seal.Parse(seal.Generate())
	require.NoError(t, err)
	url := pgtest.URL(t)
	owner := pgtest.OpenPool(t, url)
	for _, parent := range []string{"executions", "execution_payloads"} {
		_, err = owner.Exec(t.Context(), `DO $$ DECLARE p regclass; BEGIN
			FOR p IN SELECT inhrelid FROM pg_inherits WHERE inhparent = '`+parent+`'::regclass LOOP EXECUTE 'DROP TABLE ' || p; END LOOP; END $$`)
		require.NoError(t, err)
	}
	s, err := New(t.Context(), Config{
		DatabaseURL: pgtest.ServiceURL(t, url), Role: RoleAPI, BaseURL: "http://127.0.0.1", Keys: keys,
		Clock: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	var partitions int
	require.NoError(t, owner.QueryRow(t.Context(), "SELECT count(*) FROM ops.partitions()").Scan(&partitions))
	require.Equal(t, 2*4, partitions, "this month's and three more, of executions and of their payloads")
}

// Partitions of later months wait for a dump of the database; a start does not.
func TestStartDoesNotWaitForPartitionsOfLaterMonths(t *testing.T) {
	t.Parallel()
	keys, err := seal.Parse(seal.Generate())
	require.NoError(t, err)
	url := pgtest.URL(t)
	owner := pgtest.OpenPool(t, url)
	_, err = owner.Exec(t.Context(), `DO $$ BEGIN
		PERFORM execution_partitions_provide(3); -- the test's database may have been made in another month
		EXECUTE 'DROP TABLE executions_' || to_char(now() AT TIME ZONE 'UTC' + interval '3 months', 'YYYYMM'); END $$`)
	require.NoError(t, err)
	dump, err := owner.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = dump.Rollback(context.Background()) }()
	_, err = dump.Exec(t.Context(), "LOCK executions IN ACCESS SHARE MODE")
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := New(ctx, Config{
		DatabaseURL: pgtest.ServiceURL(t, url), Role: RoleAPI, BaseURL: "http://127.0.0.1", Keys: keys,
		Clock: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	require.NoError(t, s.Stop(context.Background()))
}
