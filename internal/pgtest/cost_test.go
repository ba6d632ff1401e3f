package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
)

func TestCountedPool(t *testing.T) {
	t.Parallel()
	pool, counter := pgtest.CountedPool(t, pgtest.OpenPool(t, pgtest.EmptyURL(t)))
	require.Equal(t, pgtest.Cost{}, counter.Of(func() {}))
	require.Equal(t, pgtest.Cost{Transactions: 1, Trips: 1}, counter.Of(func() {
		_, err := pool.Exec(t.Context(), "SELECT 1")
		require.NoError(t, err)
	}))
	require.Equal(t, pgtest.Cost{Transactions: 1, Trips: 1}, counter.Of(func() {
		batch := &pgx.Batch{}
		batch.Queue("SELECT 1")
		batch.Queue("SELECT 2")
		require.NoError(t, pool.SendBatch(t.Context(), batch).Close())
	}))
	require.Equal(t, pgtest.Cost{Transactions: 1, Trips: 3}, counter.Of(func() {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "SELECT 1")
			return err
		}))
	}), "begin, the statement, commit")
}
