package migrations_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tranche/internal/pgtest"
	"tranche/migrations"
)

func TestUpTenAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	pools := make([]*pgxpool.Pool, 10)
	for i := range pools { // a pool each, as ten processes have
		pools[i] = pgtest.OpenPool(t, url)
	}
	require.ErrorIs(t, migrations.Behind(t.Context(), pools[0]), migrations.ErrBehind)
	require.ErrorContains(t, migrations.Behind(t.Context(), pools[0]), "run `tranche migrate`")

	var all errgroup.Group
	for _, pool := range pools {
		all.Go(func() error { return migrations.Up(t.Context(), pool) })
	}
	require.NoError(t, all.Wait())
	require.NoError(t, migrations.Behind(t.Context(), pools[0]))

	own, _, err := migrations.Versions()
	require.NoError(t, err)
	require.Equal(t, own, scan[int64](t, pools[0], "SELECT max(version_id) FROM goose_db_version"))
	require.Zero(t, scan[int64](t, pools[0], "SELECT count(*) - count(DISTINCT version_id) FROM goose_db_version"), "each migration ran once")
	require.NoError(t, migrations.Up(t.Context(), pools[0]), "and again there is nothing to do")
}

func TestUpTunesRiver(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	require.Equal(t, []string{"river_job_pkey", "river_job_prioritized_fetching_index", "river_job_state_and_finalized_at_index", "river_job_unique_idx"},
		scan[[]string](t, pool, "SELECT array_agg(indexname::text ORDER BY indexname) FROM pg_indexes WHERE schemaname = 'river' AND tablename = 'river_job'"))
	require.Contains(t, scan[[]string](t, pool, "SELECT reloptions FROM pg_class WHERE oid = 'river.river_job'::regclass"), "autovacuum_vacuum_cost_delay=0")
	require.Zero(t, scan[int](t, pool, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE 'river%'"))
}

func TestBehindAfterAnInterruptedMigration(t *testing.T) {
	t.Parallel()
	pool := pgtest.OpenPool(t, pgtest.EmptyURL(t))
	provider, err := migrations.NewProvider(pool)
	require.NoError(t, err)
	require.NoError(t, migrations.RiverUp(t.Context(), pool))
	_, err = provider.UpTo(t.Context(), 1)
	require.NoError(t, err)
	require.ErrorIs(t, migrations.Behind(t.Context(), pool), migrations.ErrBehind)
	require.ErrorContains(t, migrations.Behind(t.Context(), pool), "schema 1 of ")
	require.NoError(t, migrations.Up(t.Context(), pool))
	require.NoError(t, migrations.Behind(t.Context(), pool))
}

// A program that has a migration without one before it, which was written meanwhile,
// leaves the database to the next.
func TestUpAppliesSkippedMigrations(t *testing.T) {
	t.Parallel()
	newest, _, err := migrations.Versions()
	require.NoError(t, err)
	for _, newestApplied := range []int64{25, newest} {
		t.Run(fmt.Sprint(newestApplied), func(t *testing.T) {
			t.Parallel()
			pool := pgtest.OpenPool(t, pgtest.EmptyURL(t))
			require.NoError(t, migrations.Up(t.Context(), pool))
			provider, err := migrations.NewProvider(pool)
			require.NoError(t, err)
			_, err = provider.DownTo(t.Context(), newestApplied)
			require.NoError(t, err)
			_, err = provider.ApplyVersion(t.Context(), 22, false)
			require.NoError(t, err)

			require.ErrorIs(t, migrations.Behind(t.Context(), pool), migrations.ErrBehind)
			require.NoError(t, migrations.Up(t.Context(), pool))
			require.NoError(t, migrations.Behind(t.Context(), pool))
			pending, err := provider.HasPending(t.Context())
			require.NoError(t, err)
			require.False(t, pending)
		})
	}
}

// TestUpWithAnOlderProcessRunning has a transaction of an older process lock tables in
// the other order than a migration: the migration gives way and begins anew.
func TestUpWithAnOlderProcessRunning(t *testing.T) {
	t.Parallel()
	pool := pgtest.OpenPool(t, pgtest.EmptyURL(t))
	require.NoError(t, migrations.Up(t.Context(), pool))
	provider, err := migrations.NewProvider(pool)
	require.NoError(t, err)
	_, err = provider.DownTo(t.Context(), 25)
	require.NoError(t, err)

	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SET LOCAL deadlock_timeout = '1min'; LOCK execution_payloads IN ROW EXCLUSIVE MODE")
	require.NoError(t, err)
	var up errgroup.Group
	up.Go(func() error { return migrations.Up(t.Context(), pool) })
	require.Eventually(t, func() bool { // it has executions, and waits for their payloads
		return scan[bool](t, pool, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'execution_payloads'::regclass)")
	}, 10*time.Second, 10*time.Millisecond)
	_, err = tx.Exec(t.Context(), "LOCK executions IN ROW EXCLUSIVE MODE")
	require.NoError(t, err, "the migration gives way")
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, up.Wait())
	require.NoError(t, migrations.Behind(t.Context(), pool))
}

// TestUpLeavesLimitsReadable has a migration wait for a large table, as it does while it
// builds indexes: what processes read every two seconds, or refuse requests, can be read.
func TestUpLeavesLimitsReadable(t *testing.T) {
	t.Parallel()
	pool := pgtest.OpenPool(t, pgtest.EmptyURL(t))
	require.NoError(t, migrations.Up(t.Context(), pool))
	provider, err := migrations.NewProvider(pool)
	require.NoError(t, err)
	_, err = provider.DownTo(t.Context(), 27)
	require.NoError(t, err)

	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), "LOCK authorizations IN ROW EXCLUSIVE MODE")
	require.NoError(t, err)
	var up errgroup.Group
	up.Go(func() error { return migrations.Up(t.Context(), pool) })
	require.Eventually(t, func() bool {
		return scan[bool](t, pool, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'authorizations'::regclass)")
	}, 10*time.Second, 10*time.Millisecond)
	_, err = pool.Exec(t.Context(), "SET LOCAL lock_timeout = '500ms'; SELECT per_minute FROM tenant_limits")
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, up.Wait())
	require.NoError(t, migrations.Behind(t.Context(), pool))
}

func TestDatabaseOfANewerProgramIsRefused(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"schema": "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)",
		"River":  "INSERT INTO river.river_migration (line, version) VALUES ('main', 999)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			_, err := pool.Exec(t.Context(), statement)
			require.NoError(t, err)
			require.ErrorIs(t, migrations.Behind(t.Context(), pool), migrations.ErrAhead)
			require.ErrorIs(t, migrations.Up(t.Context(), pool), migrations.ErrAhead)
			require.ErrorContains(t, migrations.Up(t.Context(), pool), "run the newer tranche")
		})
	}
}

// TestFilesOfAServerWithLZ4 has the catalog say what it says where the files of a server
// with LZ4 are run by the server of the test, which may have it or not.
func TestFilesOfAServerWithLZ4(t *testing.T) {
	t.Parallel()
	pool := pgtest.OpenPool(t, pgtest.EmptyURL(t))
	require.NoError(t, migrations.Up(t.Context(), pool))
	_, err := pool.Exec(t.Context(), "UPDATE pg_attribute SET attcompression = 'l' WHERE attrelid = 'batch_chunks'::regclass AND attname = 'inputs'")
	require.NoError(t, err)
	if scan[bool](t, pool, "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'") {
		require.NoError(t, migrations.Behind(t.Context(), pool))
		return
	}
	require.ErrorIs(t, migrations.Behind(t.Context(), pool), migrations.ErrLZ4)
	require.ErrorIs(t, migrations.Up(t.Context(), pool), migrations.ErrLZ4)
}

func TestEveryMigrationCanBeUndone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	provider, err := migrations.NewProvider(pool)
	require.NoError(t, err)
	_, err = provider.DownTo(t.Context(), 0)
	require.NoError(t, err)
	require.Zero(t, scan[int](t, pool, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'goose_db_version'"))
	require.NoError(t, migrations.Up(t.Context(), pool))
}

func TestUpAndBehindWithoutADatabase(t *testing.T) {
	t.Parallel()
	pool := pgtest.OpenPool(t, "postgres://nobody@127.0.0.1:1/none")
	for _, attempt := range []func(context.Context, *pgxpool.Pool) error{migrations.Up, migrations.Behind} {
		err := attempt(t.Context(), pool)
		require.ErrorContains(t, err, "127.0.0.1:1")
		require.NotErrorIs(t, err, migrations.ErrBehind)
	}
}

func TestUpEndsWithItsContext(t *testing.T) {
	t.Parallel()
	pool := pgtest.OpenPool(t, pgtest.EmptyURL(t))
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	require.NoError(t, migrations.Lock(t.Context(), conn.Conn()))

	ctx, cancel := context.WithTimeout(t.Context(), 3*migrations.LockPollInterval)
	defer cancel()
	err = migrations.Up(ctx, pool)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "another migrating process")
}

func scan[T any](t *testing.T, pool *pgxpool.Pool, query string) T {
	t.Helper()
	var value T
	require.NoError(t, pool.QueryRow(t.Context(), query).Scan(&value))
	return value
}
