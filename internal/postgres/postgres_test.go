package postgres_test

import (
	"context"
	"testing"
	"time"

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

func TestPoolsCallersDoNotWaitForever(t *testing.T) {
	t.Parallel()
	pool, err := postgres.NewPool(t.Context(), pgtest.EmptyURL(t), postgres.PoolOptions{Conns: 1})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	held, err := pool.Acquire(t.Context())
	require.NoError(t, err)

	began := time.Now()
	err = postgres.InTx(t.Context(), pool, nothing)
	requireUnavailable(t, err, time.Second)
	require.InDelta(t, 5, time.Since(began).Seconds(), 1)

	// The limit is the wait's alone: a statement may take longer than it.
	held.Release()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = pool.Exec(ctx, "SELECT pg_sleep(5.5)")
	require.NoError(t, err)
}
