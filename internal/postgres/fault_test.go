package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/fault"
	"tranche/internal/pgtest"
	"tranche/internal/postgres"
)

func TestTranslateCodes(t *testing.T) {
	t.Parallel()
	pool := pgtest.OpenPool(t, pgtest.EmptyURL(t))
	for code, retryAfter := range map[string]time.Duration{
		"40001": time.Second,     // serialization failure
		"40P01": time.Second,     // deadlock
		"55P03": time.Second,     // lock not available
		"53100": 5 * time.Second, // disk full
		"53200": 5 * time.Second, // out of memory
		"53300": 5 * time.Second, // too many connections
		"57P01": 5 * time.Second, // admin shutdown
		"57P02": 5 * time.Second, // crash shutdown
		"57P03": 5 * time.Second, // cannot connect now
		"08006": 5 * time.Second, // connection failure
		"58030": 5 * time.Second, // input or output error
		"25006": 5 * time.Second, // read-only: a standby
		"0A000": 5 * time.Second, // unlogged tables of a standby
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			err := fmt.Errorf("doing something: %w", fail(t, pool, code))
			requireUnavailable(t, postgres.Translate(err), retryAfter)
			require.ErrorIs(t, postgres.Translate(err), err, "the cause is kept")
			require.NotContains(t, fault.From(postgres.Translate(err)).Message, "as a test wants it")
		})
	}
	for _, code := range []string{"23505", "23503", "22P02", "42601", "XX000"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			err := fail(t, pool, code)
			require.Equal(t, err, postgres.Translate(err), "the caller's to judge")
			require.Equal(t, code == "23505", postgres.IsDuplicate(err))
		})
	}
}

// Only a statement that was not sent certainly has no effect.
func TestUnsent(t *testing.T) {
	t.Parallel()
	pool := pgtest.OpenPool(t, pgtest.EmptyURL(t))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	asked := func(ctx context.Context, pool *pgxpool.Pool, sql string) error {
		_, err := pool.Exec(ctx, sql)
		require.Error(t, err)
		return err
	}
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, ended := conn.Exec(over, `SELECT 1`)
	require.Error(t, ended)

	away := asked(t.Context(), pgtest.OpenPool(t, unreachable), `SELECT 1`)
	require.True(t, postgres.Unsent(away))
	require.True(t, postgres.Unsent(fmt.Errorf("doing something: %w", postgres.Translate(away))))
	require.True(t, postgres.Unsent(ended), "it was too late before")
	for _, err := range []error{
		asked(soon, pool, `SELECT pg_sleep(10)`), asked(t.Context(), pool, `SELECT pg_terminate_backend(pg_backend_pid())`),
	} {
		require.False(t, postgres.Unsent(err))
		require.False(t, postgres.Unsent(postgres.Translate(err)))
	}
}

func TestTranslateConnections(t *testing.T) {
	t.Parallel()
	for name, provoke := range map[string]func(t *testing.T) error{
		"nothing listens": func(t *testing.T) error {
			t.Helper()
			return pgtest.OpenPool(t, unreachable).Ping(t.Context())
		},
		"no such socket": func(t *testing.T) error {
			t.Helper()
			return pgtest.OpenPool(t, "postgres://nobody@/none?host=/nonexistent").Ping(t.Context())
		},
		"no such database": func(t *testing.T) error {
			t.Helper()
			pool := pgtest.OpenPool(t, pgtest.EmptyURL(t)+"&dbname=nowhere")
			return pool.Ping(t.Context())
		},
		"terminated while idle": func(t *testing.T) error {
			t.Helper()
			conn := terminated(t)
			_, err := conn.Exec(t.Context(), "SELECT 1")
			return err
		},
		"already closed": func(t *testing.T) error {
			t.Helper()
			conn := terminated(t)
			require.NoError(t, conn.Close(t.Context()))
			_, err := conn.Exec(t.Context(), "SELECT 1")
			return err
		},
		"pool closed": func(t *testing.T) error {
			t.Helper()
			pool := pgtest.OpenPool(t, pgtest.EmptyURL(t))
			pool.Close()
			return postgres.InTx(t.Context(), pool, nothing)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireUnavailable(t, postgres.Translate(provoke(t)), 5*time.Second)
		})
	}
}

// terminated returns a connection that an administrator has ended.
func terminated(t *testing.T) *pgx.Conn {
	t.Helper()
	url := pgtest.EmptyURL(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = pgtest.OpenPool(t, url).Exec(t.Context(), "SELECT pg_terminate_backend($1)", conn.PgConn().PID())
	require.NoError(t, err)
	return conn
}

func TestTranslateTimeLimits(t *testing.T) {
	t.Parallel()
	pool, err := postgres.NewPool(t.Context(), pgtest.EmptyURL(t), postgres.PoolOptions{Conns: 2, StatementTimeMax: 50 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(pool.Close)

	_, err = pool.Exec(t.Context(), "SELECT pg_sleep(10)")
	requireUnavailable(t, postgres.Translate(err), time.Second)

	deadline, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = pool.Exec(deadline, "SELECT pg_sleep(10)")
	requireUnavailable(t, postgres.Translate(err), time.Second)

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = pool.Exec(gone, "SELECT 1")
	require.NotErrorIs(t, postgres.Translate(err), fault.Unavailable, "the caller has gone: nothing is wrong")
	require.ErrorIs(t, postgres.Translate(err), context.Canceled)
}

func TestTranslateLeavesFaults(t *testing.T) {
	t.Parallel()
	require.NoError(t, postgres.Translate(nil))
	already := fmt.Errorf("more: %w", fault.Wrap(context.DeadlineExceeded, fault.Conflict, "taken"))
	require.Equal(t, already, postgres.Translate(already))
}

func TestViolates(t *testing.T) {
	t.Parallel()
	tx := pgtest.Tx(t)
	for name, test := range map[string]struct{ statement, constraint string }{
		"unique":     {"INSERT INTO kinds VALUES (1, 2), (1, 3)", "kinds_pkey"},
		"check":      {"INSERT INTO kinds VALUES (2, -1)", "kinds_n_check"},
		"index":      {"INSERT INTO kinds VALUES (3, 7), (4, 7)", "kinds_sevens"},
		"other code": {"SELECT 1/0", ""},
	} {
		err := postgres.InTx(t.Context(), tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "CREATE TABLE kinds (id int PRIMARY KEY, n int CHECK (n > 0)); CREATE UNIQUE INDEX kinds_sevens ON kinds (n) WHERE n = 7")
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), test.statement)
			return err
		})
		require.Error(t, err, name)
		require.Equal(t, test.constraint != "", postgres.Violates(err, test.constraint), name)
		require.False(t, postgres.Violates(err, "another"), name)
	}
	require.False(t, postgres.Violates(nil, "kinds_pkey"))
}
