package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tranche/internal/fault"
	"tranche/internal/pgtest"
	"tranche/internal/postgres"
)

func nothing(pgx.Tx) error { return nil }

// fail makes a statement fail with an SQLSTATE.
func fail(t *testing.T, db interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}, code string,
) error {
	t.Helper()
	return pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error { return raise(t.Context(), tx, code) })
}

func raise(ctx context.Context, tx pgx.Tx, code string) error {
	_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE EXCEPTION 'as a test wants it' USING ERRCODE = '"+code+"'; END $$")
	return err
}

func requireUnavailable(t *testing.T, err error, retryAfter time.Duration) {
	t.Helper()
	require.ErrorIs(t, err, fault.Unavailable)
	require.Equal(t, retryAfter, fault.From(err).RetryAfter)
}

func counters(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.OpenPool(t, pgtest.EmptyURL(t))
	_, err := pool.Exec(t.Context(), "CREATE TABLE counters AS SELECT id, 0 AS n FROM generate_series(1, 2) AS id")
	require.NoError(t, err)
	return pool
}

func add(ctx context.Context, tx pgx.Tx, id int) error {
	_, err := tx.Exec(ctx, "UPDATE counters SET n = n + 1 WHERE id = $1", id)
	return err
}

func sum(t *testing.T, pool *pgxpool.Pool) (total int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT sum(n) FROM counters").Scan(&total))
	return total
}

func TestInTx(t *testing.T) {
	t.Parallel()
	pool := counters(t)
	require.NoError(t, postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error { return add(t.Context(), tx, 1) }))
	require.Equal(t, 1, sum(t, pool), "committed")

	own := errors.New("the caller's own")
	runs := 0
	err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		runs++
		return errors.Join(add(t.Context(), tx, 1), own)
	})
	require.ErrorIs(t, err, own)
	require.Equal(t, 1, runs, "not repeated")
	require.Equal(t, 1, sum(t, pool), "rolled back")
}

func TestInTxRetries(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"40001", "40P01"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			pool := counters(t)
			runs := 0
			require.NoError(t, postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
				if err := add(t.Context(), tx, 1); err != nil {
					return err
				}
				if runs++; runs < 3 {
					return raise(t.Context(), tx, code)
				}
				return nil
			}))
			require.Equal(t, 3, runs)
			require.Equal(t, 1, sum(t, pool), "counted once")

			runs = 0
			err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
				runs++
				return raise(t.Context(), tx, code)
			})
			requireUnavailable(t, err, time.Second)
			require.Equal(t, 5, runs, "at most")
		})
	}
}

func TestInTxRetriesAfterDeadlock(t *testing.T) {
	t.Parallel()
	pool := counters(t)
	firstLocked := make(chan struct{}, 10)
	var both errgroup.Group
	for _, order := range [][]int{{1, 2}, {2, 1}} {
		both.Go(func() error {
			return postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
				if err := add(t.Context(), tx, order[0]); err != nil {
					return err
				}
				firstLocked <- struct{}{}
				for deadline := time.Now().Add(time.Second); len(firstLocked) < 2 && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
				return add(t.Context(), tx, order[1])
			})
		})
	}
	require.NoError(t, both.Wait())
	require.Equal(t, 4, sum(t, pool))
	require.GreaterOrEqual(t, len(firstLocked), 3, "one of them ran twice")
}

func TestInTxNested(t *testing.T) {
	t.Parallel()
	tx := pgtest.Tx(t)
	require.Error(t, postgres.InTx(t.Context(), tx, func(tx pgx.Tx) error { return raise(t.Context(), tx, "22012") }))
	_, err := tx.Exec(t.Context(), "SELECT 1")
	require.NoError(t, err, "the outer transaction goes on")
}
