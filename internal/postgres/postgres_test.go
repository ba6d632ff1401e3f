package postgres_test

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/fault"
	"tranche/internal/pgtest"
	"tranche/internal/postgres"
)

const unreachable = "postgres://nobody@127.0.0.1:1/none"

func TestOpen(t *testing.T) {
	t.Parallel()
	pools, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.EmptyURL(t), APIConns: 3, WorkerConns: 5})
	require.NoError(t, err)
	t.Cleanup(pools.Close)
	require.Equal(t, int32(3), pools.API.Config().MaxConns)
	require.Equal(t, int32(5), pools.Workers.Config().MaxConns)

	const settings = `SELECT current_setting('application_name') || ', ' || current_setting('statement_timeout') || ', '
		|| current_setting('idle_in_transaction_session_timeout') || ', ' || current_setting('timezone')`
	var got string
	require.NoError(t, pools.API.QueryRow(t.Context(), settings).Scan(&got))
	require.Equal(t, "tranche api, 30s, 1min, UTC", got)
	require.NoError(t, pools.Workers.QueryRow(t.Context(), settings).Scan(&got))
	require.Equal(t, "tranche workers, 0, 1min, UTC", got)

	var now time.Time
	require.NoError(t, pools.API.QueryRow(t.Context(), "SELECT now()").Scan(&now))
	require.Equal(t, time.UTC, now.Location())
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	_, err := postgres.Open(t.Context(), postgres.Config{URL: unreachable})
	require.ErrorIs(t, err, fault.Unavailable)

	_, err = postgres.Open(t.Context(), postgres.Config{URL: "postgres://user:secret@host:port/"})
	require.ErrorContains(t, err, "DATABASE_URL")
	require.NotContains(t, err.Error(), "secret")
}

func TestAcquireTimeLimit(t *testing.T) {
	t.Parallel()
	pool, err := postgres.NewPool(t.Context(), pgtest.EmptyURL(t), postgres.PoolOptions{Conns: 1})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	held, err := pool.Acquire(t.Context())
	require.NoError(t, err)

	began := time.Now()
	err = postgres.InTx(t.Context(), pool, nothing)
	requireUnavailable(t, err, time.Second)
	require.GreaterOrEqual(t, time.Since(began), 5*time.Second)

	// A statement may take longer than the limit of the wait.
	held.Release()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = pool.Exec(ctx, "SELECT pg_sleep(5.5)")
	require.NoError(t, err)
}

// The defaults of the database do not change the settings that statements rely on.
func TestConnectionSettings(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	alter(t, url, "search_path = ''", "client_encoding = 'LATIN1'", "row_security = off", "quote_all_identifiers = on",
		"default_transaction_isolation = 'serializable'", "timezone = 'Asia/Kathmandu'")
	pool, err := postgres.NewPool(t.Context(), url, postgres.PoolOptions{Conns: 1, Unscoped: postgres.SeesAsUser})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	var got string
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT string_agg(current_setting(name), ', ' ORDER BY place)
		FROM unnest(ARRAY['search_path', 'client_encoding', 'row_security', 'quote_all_identifiers', 'transaction_isolation', 'timezone'])
			WITH ORDINALITY AS wanted (name, place)`).Scan(&got))
	require.Equal(t, "public, UTF8, on, off, read committed, UTC", got)
}

func TestWrongEncoding(t *testing.T) {
	t.Parallel()
	_, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.EmptyURL(t, "ENCODING 'LATIN1'", "LOCALE 'C'", "TEMPLATE template0")})
	require.ErrorContains(t, err, "the database must have the encoding UTF8, not LATIN1")
}

// configOf returns the configuration of a pool of one connection.
func configOf(t *testing.T, url string) *pgxpool.Config {
	t.Helper()
	pool, err := postgres.NewPool(t.Context(), url, postgres.PoolOptions{Conns: 1, Unscoped: postgres.SeesAll})
	require.NoError(t, err)
	pool.Close()
	return pool.Config()
}

// With a pooler that drops the role, statements would see the rows of all tenants.
func TestPoolerThatDropsRole(t *testing.T) {
	t.Parallel()
	config := configOf(t, pgtest.URL(t))
	config.ConnConfig.DialFunc = dropRole(config.ConnConfig.DialFunc)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.ErrorContains(t, pool.Ping(t.Context()), "connect to PostgreSQL directly")
}

// dropRole renames the role parameter in the bytes that are written to a connection.
func dropRole(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return roleless{conn}, err
	}
}

type roleless struct{ net.Conn }

func (r roleless) Write(sent []byte) (int, error) {
	_, err := r.Conn.Write(bytes.Replace(sent, []byte("\x00role\x00"), []byte("\x00x.le\x00"), 1))
	return len(sent), err
}

// A connection that began while the database was read-only is soon replaced, so that work
// continues when the database is writable again.
func TestReadOnlyConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	alter(t, url, "default_transaction_read_only = on")
	pool, err := postgres.NewPool(t.Context(), url, postgres.PoolOptions{Conns: 1, Unscoped: postgres.SeesAsUser})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	write := func() error {
		_, err := pool.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS written ()")
		return postgres.Translate(err)
	}
	requireUnavailable(t, write(), 5*time.Second)
	alter(t, url, "default_transaction_read_only = off")
	require.Eventually(t, func() bool { return write() == nil }, 10*time.Second, 500*time.Millisecond)
}

// alter sets the defaults of a database.
func alter(t *testing.T, url string, settings ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	_, err = conn.Exec(t.Context(), "SET default_transaction_read_only = off")
	require.NoError(t, err)
	for _, setting := range settings {
		_, err := conn.Exec(t.Context(), "ALTER DATABASE "+pgx.Identifier{conn.Config().Database}.Sanitize()+" SET "+setting)
		require.NoError(t, err)
	}
}
