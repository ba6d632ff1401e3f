package queries_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/postgres"
	"tranche/queries"
)

// A page of a batch's items reads no payloads of the pages before, and the few items
// of a status are found without looking through the others, with the planner's
// statistics and without.
func TestBatchItemListsReadOnlyTheirPage(t *testing.T) {
	t.Parallel()
	const items, failed, page = 5000, 10, 20
	url := pgtest.URL(t)
	owner := pgtest.OpenPool(t, url)
	for _, analyze := range []string{`SELECT`, `ANALYZE executions, execution_payloads`} {
		tenant, workflow, batch := pgtest.Tenant(t, owner).ID, uuid.New(), pgtest.NewID(t)
		exec(t, owner, `WITH item AS (
				INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, batch_id, item_index, status, created_at)
				SELECT overlay(uuid_at(now()::timestamp)::text PLACING substr(gen_random_uuid()::text, 15) FROM 15)::uuid, $1, $2, 'a', 1, 'tester', $3, i,
					CASE WHEN i % ($4 / $5) = 0 THEN 'failed' ELSE 'completed' END, now() FROM generate_series(0, $4 - 1) i RETURNING id
			) INSERT INTO execution_payloads (execution_id, tenant_id, input) SELECT id, $1, '{}' FROM item`, tenant, workflow, batch, items, failed)
		exec(t, owner, analyze)
		pool, err := postgres.NewPool(t.Context(), url, postgres.PoolOptions{Conns: 1})
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		read := func(tables string, list func(ctx context.Context, db queries.DBTX) error) (read int) {
			const counted = `SELECT sum(pg_stat_get_xact_tuples_returned(c.oid) + pg_stat_get_xact_tuples_fetched(c.oid))
				FROM pg_class c WHERE c.relname ~ $1`
			require.NoError(t, pgx.BeginFunc(postgres.WithTenant(t.Context(), tenant), pool, func(tx pgx.Tx) error {
				before := pgtest.Value[int](t, tx, counted, tables)
				require.NoError(t, list(t.Context(), tx))
				require.NoError(t, tx.QueryRow(t.Context(), counted, tables).Scan(&read))
				read -= before
				return nil
			}))
			return read
		}
		for range 8 {
			require.LessOrEqual(t, read(`^execution_payloads_`, func(ctx context.Context, db queries.DBTX) error {
				found, err := queries.New().BatchItemList(ctx, db, queries.BatchItemListParams{TenantID: tenant, BatchID: batch, RowLimit: page, RowOffset: items - page})
				require.Len(t, found, page)
				return err
			}), 5*page, analyze)
			var found queries.BatchItemFindByStatusRow
			require.LessOrEqual(t, read(`^executions_`, func(ctx context.Context, db queries.DBTX) (err error) {
				found, err = queries.New().BatchItemFindByStatus(ctx, db, queries.BatchItemFindByStatusParams{
					TenantID: tenant, BatchID: batch, WorkflowID: workflow, Status: "failed", LastID: uuid.Max, CountMax: 1000,
				})
				return err
			}), 5*failed, analyze)
			require.Len(t, found.Found, failed)
			require.LessOrEqual(t, read(`^executions_`, func(ctx context.Context, db queries.DBTX) error {
				listed, err := queries.New().BatchItemListByID(ctx, db, queries.BatchItemListByIDParams{TenantID: tenant, Ids: found.Found, RowLimit: page})
				require.Len(t, listed, failed)
				return err
			}), 5*failed, analyze)
		}
	}
}
