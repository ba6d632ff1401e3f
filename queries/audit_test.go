package queries_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/audit"
	"tranche/internal/pgtest"
	"tranche/internal/postgres"
)

// Who asks for the audit trail of a day reads neither what is older nor what is
// others'.
func TestAuditListsReadOnlyTheirPage(t *testing.T) {
	t.Parallel()
	const old, recent = 3000, 5
	url := pgtest.URL(t)
	owner := pgtest.OpenPool(t, url)
	tenant, other := pgtest.Tenant(t, owner).ID, pgtest.Tenant(t, owner).ID
	insert := func(of *uuid.UUID, age time.Duration, n int) {
		exec(t, owner, `INSERT INTO audit_events (id, tenant_id, at, actor, action, subject)
			SELECT overlay(uuid_at(made.at::timestamp)::text PLACING substr(gen_random_uuid()::text, 15) FROM 15)::uuid, $1, made.at, 'operator', 'workflow.publish', ''
			FROM generate_series(1, $3) i, (SELECT now() AT TIME ZONE 'UTC' - make_interval(secs => $2) AS at) AS made`, of, age.Seconds(), n)
		exec(t, owner, `INSERT INTO audit_refusals (minute, tenant_id, client_id, status, reason, count)
			SELECT date_trunc('minute', now() - make_interval(secs => $2)), $1, gen_random_uuid(), 401, 'test', 1 FROM generate_series(1, $3) i`, of, age.Seconds(), n)
	}
	for _, of := range []*uuid.UUID{&tenant, nil} {
		insert(of, 30*24*time.Hour, old)
		insert(of, time.Hour, recent)
	}
	insert(&other, time.Hour, old)
	exec(t, owner, `ANALYZE audit_events, audit_refusals`)
	pool, err := postgres.NewPool(t.Context(), url, postgres.PoolOptions{Conns: 1, Unscoped: postgres.SeesAll})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for _, of := range []uuid.UUID{tenant, uuid.Nil} {
		var read int
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			const counted = `SELECT sum(pg_stat_get_xact_tuples_returned(c.oid) + pg_stat_get_xact_tuples_fetched(c.oid)) FROM pg_class c WHERE c.relname ~ '^audit_'`
			before := pgtest.Value[int](t, tx, counted)
			events, err := audit.Events(t.Context(), tx, of, time.Now().Add(-24*time.Hour), "", 1000)
			require.NoError(t, err)
			require.Len(t, events, recent)
			refusals, err := audit.DeniedCounts(t.Context(), tx, of, time.Now().Add(-24*time.Hour), 1000)
			require.NoError(t, err)
			require.Len(t, refusals, recent)
			require.NoError(t, tx.QueryRow(t.Context(), counted).Scan(&read))
			read -= before
			return nil
		}))
		require.LessOrEqual(t, read, 10*recent)
	}
}
