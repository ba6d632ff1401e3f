package queries_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/postgres"
	"tranche/queries"
)

// Who looks for what dead processes held reads what runs, and neither what has
// ended nor what has not begun, with the planner's statistics and without.
func TestExecutionListAbandonedReadsRunningRowsOnly(t *testing.T) {
	t.Parallel()
	const ended, runs = 3000, 10
	url := pgtest.URL(t)
	owner := pgtest.OpenPool(t, url)
	for _, analyze := range []string{`SELECT`, `ANALYZE executions`} {
		tenantID := pgtest.Tenant(t, owner).ID
		insert := func(status string, n int) {
			exec(t, owner, `INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, status, created_at, lease_token, lease_process_id)
				SELECT overlay(uuid_at(now()::timestamp)::text PLACING substr(gen_random_uuid()::text, 15) FROM 15)::uuid, $1, $1, 'a', 1, 'tester', $2, now(),
					CASE WHEN $2 = 'running' THEN gen_random_uuid() END, CASE WHEN $2 = 'running' THEN gen_random_uuid() END FROM generate_series(1, $3)`, tenantID, status, n)
		}
		insert("failed", ended)
		insert("completed", ended)
		insert("pending", ended)
		insert("running", runs)
		exec(t, owner, analyze)

		pool, err := postgres.NewPool(t.Context(), url, postgres.PoolOptions{Conns: 1, Unscoped: postgres.SeesAll})
		require.NoError(t, err)
		var read int
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			found, err := queries.New().SysExecutionListAbandoned(t.Context(), tx, queries.SysExecutionListAbandonedParams{
				ProcessIds: []uuid.UUID{uuid.New()}, IncludesExpired: true, DeadAfterSeconds: 20,
			})
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(found), runs)
			return tx.QueryRow(t.Context(), `SELECT sum(pg_stat_get_xact_tuples_returned(c.oid) + pg_stat_get_xact_tuples_fetched(c.oid))
				FROM pg_class c WHERE c.relname ~ '^executions_' OR c.oid IN (SELECT i.indexrelid FROM pg_index i JOIN pg_class p ON p.oid = i.indrelid WHERE p.relname ~ '^executions_')`).Scan(&read)
		}))
		pool.Close()
		require.GreaterOrEqual(t, read, runs, analyze)
		require.Less(t, read, 10*runs, analyze)
	}
}
