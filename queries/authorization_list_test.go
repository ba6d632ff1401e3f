package queries_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/postgres"
	"tranche/queries"
)

// A page of a list reads about as many authorizations as it shows, whatever its
// order and however few of all are the caller's tenant's.
func TestAuthorizationListsReadOnlyTheirPage(t *testing.T) {
	t.Parallel()
	const rows, page = 20_000, 10
	url := pgtest.URL(t)
	owner := pgtest.OpenPool(t, url)
	large, small := pgtest.Tenant(t, owner).ID, pgtest.Tenant(t, owner).ID
	for tenant, n := range map[uuid.UUID]int{large: rows, small: 5} {
		exec(t, owner, `INSERT INTO authorizations (id, tenant_id, key, label, identity_key, identity_value, ip_address, search_text, expires_at, authorized_at, updated_at)
			SELECT overlay(uuid_at(now()::timestamp)::text PLACING substr(gen_random_uuid()::text, 15) FROM 15)::uuid, $1, 'key-' || i % 7, 'label ' || i % 100, 'id', i::text, '', 'text',
				now() + i * interval '1 hour', CASE WHEN i % 3 > 0 THEN now() - i % 1000 * interval '1 hour' END, now() + i % 5000 * interval '1 second'
			FROM generate_series(1, $2) i`, tenant, n)
	}
	exec(t, owner, `ANALYZE authorizations`)
	pool, err := postgres.NewPool(t.Context(), url, postgres.PoolOptions{Conns: 1})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for _, tenant := range []uuid.UUID{large, large, large, large, large, large, small} { // by then a plan would be kept
		for _, list := range authorizationLists(tenant, page) {
			read := authorizationsRead(t, pool, tenant, list)
			require.LessOrEqual(t, read, 5*page)
		}
	}
	kept := pgtest.Value[int](t, pool, `SELECT count(*) FROM pg_prepared_statements WHERE statement ~ '^-- name: AuthorizationList'`)
	require.Zero(t, kept)
	for _, key := range []string{"key-3", "none"} {
		require.LessOrEqual(t, authorizationsRead(t, pool, large, func(ctx context.Context, db queries.DBTX) (int, error) {
			found, err := queries.New().AuthorizationListNewest(ctx, db, queries.AuthorizationListNewestParams{TenantID: large, Key: &key, RowLimit: page})
			return len(found), err
		}), 5*page, key)
	}
}

// authorizationLists are the lists in all of their orders.
func authorizationLists(tenant uuid.UUID, page int32) (lists []func(context.Context, queries.DBTX) (int, error)) {
	lists = append(lists, func(ctx context.Context, db queries.DBTX) (int, error) {
		found, err := queries.New().AuthorizationListNewest(ctx, db, queries.AuthorizationListNewestParams{TenantID: tenant, RowLimit: page})
		return len(found), err
	})
	for _, field := range []string{"", "createdAt", "updatedAt", "expiresAt", "authorizedAt", "key", "label"} {
		for _, descending := range []bool{true, false} {
			lists = append(lists, func(ctx context.Context, db queries.DBTX) (int, error) {
				found, err := queries.New().AuthorizationListSorted(ctx, db, queries.AuthorizationListSortedParams{
					TenantID: tenant, SortBy: field, Descending: descending, RowLimit: page,
				})
				return len(found), err
			})
		}
	}
	return lists
}

// authorizationsRead is how many rows and entries of indexes a list reads.
func authorizationsRead(t *testing.T, pool *pgxpool.Pool, tenant uuid.UUID, list func(context.Context, queries.DBTX) (int, error)) (read int) {
	t.Helper()
	// Counted is what the session has not reported yet, other transactions' too.
	const counted = `SELECT sum(pg_stat_get_xact_tuples_returned(c.oid) + pg_stat_get_xact_tuples_fetched(c.oid))
		FROM pg_class c WHERE c.relname ~ '^authorizations'`
	require.NoError(t, pgx.BeginFunc(postgres.WithTenant(t.Context(), tenant), pool, func(tx pgx.Tx) error {
		before := pgtest.Value[int](t, tx, counted)
		_, err := list(t.Context(), queries.CustomPlan(tx))
		require.NoError(t, err)
		require.NoError(t, tx.QueryRow(t.Context(), counted).Scan(&read))
		read -= before
		return nil
	}))
	return read
}
