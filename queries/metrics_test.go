package queries_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/postgres"
	"tranche/queries"
)

// The figures of batches are read from those that are open, however many have ended.
func TestMetricsListBatchesReadsOpenRowsOnly(t *testing.T) {
	t.Parallel()
	const ended, open = 3000, 5
	url := pgtest.URL(t)
	owner := pgtest.OpenPool(t, url)
	tenant := pgtest.Tenant(t, owner).ID
	for status, n := range map[string]int{"complete": ended, "cancelled": ended, "processing": open} {
		exec(t, owner, `INSERT INTO execution_batches (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, label, status)
			SELECT gen_random_uuid(), $1, $1, 'a', 1, 'tester', '', $2 FROM generate_series(1, $3)`, tenant, status, n)
	}
	exec(t, owner, `ANALYZE execution_batches`)
	pool, err := postgres.NewPool(t.Context(), url, postgres.PoolOptions{Conns: 1, Unscoped: postgres.SeesAll})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	var read int
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		figures, err := queries.New().SysMetricsListBatches(t.Context(), tx)
		require.NoError(t, err)
		require.Equal(t, []queries.SysMetricsListBatchesRow{{Status: "processing", Batches: open}}, figures)
		return tx.QueryRow(t.Context(), `SELECT sum(pg_stat_get_xact_tuples_returned(c.oid) + pg_stat_get_xact_tuples_fetched(c.oid))
			FROM pg_class c WHERE c.relname ~ '^execution_batches'`).Scan(&read)
	}))
	require.LessOrEqual(t, read, 10*open)
}
