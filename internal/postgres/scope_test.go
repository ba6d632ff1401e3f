package postgres_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/postgres"
	"tranche/queries"
)

// roundTrips counts the messages on the connections of a pool.
type roundTrips struct{ n atomic.Int64 }

func (r *roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.n.Add(1)
	return ctx
}

func (*roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// scoped returns a pool of one connection, so that each statement has the session state of the
// statement before it.
func scoped(t *testing.T, unscoped postgres.Unscoped) (*pgxpool.Pool, *roundTrips) {
	t.Helper()
	made, err := postgres.NewPool(t.Context(), pgtest.URL(t), postgres.PoolOptions{Name: t.Name(), Conns: 1, Unscoped: unscoped})
	require.NoError(t, err)
	made.Close()
	config, sent := made.Config(), &roundTrips{}
	config.ConnConfig.Tracer = sent
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // one round trip a statement
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool, sent
}

func visibleTenants(t *testing.T, db queries.DBTX, ctx context.Context) string { //nolint:revive // the context is what is tested
	t.Helper()
	var text string
	require.NoError(t, db.QueryRow(ctx, "SELECT current_user || ' ' || coalesce(current_setting('tranche.tenant_id', true), '')").Scan(&text))
	return text
}

// A statement has the scope of its context, regardless of the connection's last scope, also in
// transactions and after a failed transaction.
func TestScopeFollowsTheContext(t *testing.T) {
	t.Parallel()
	pool, _ := scoped(t, postgres.SeesNothing)
	a, b := uuid.New(), uuid.New()
	forA, forB, forAll := postgres.WithTenant(t.Context(), a), postgres.WithTenant(t.Context(), b), postgres.AsSystem(t.Context())
	failed := errors.New("failed")
	for _, step := range []struct {
		ctx  context.Context
		want string
	}{
		{t.Context(), "tranche_app "},
		{forA, "tranche_app " + a.String()},
		{forA, "tranche_app " + a.String()},
		{forB, "tranche_app " + b.String()},
		{forAll, "tranche_system "},
		{t.Context(), "tranche_app "},
		{forAll, "tranche_system "},
		{forA, "tranche_app " + a.String()},
		{postgres.WithTenant(forAll, b), "tranche_app " + b.String()},
		{postgres.AsSystem(forA), "tranche_system "},
	} {
		for _, result := range []error{nil, failed} {
			err := postgres.InTx(step.ctx, pool, func(tx pgx.Tx) error {
				require.Equal(t, step.want, visibleTenants(t, tx, step.ctx), "in a transaction")
				return result
			})
			require.ErrorIs(t, err, result)
		}
		require.Equal(t, step.want, visibleTenants(t, pool, step.ctx))
	}
	tx, err := pool.Begin(forB)
	require.NoError(t, err)
	require.Equal(t, "tranche_app "+b.String(), visibleTenants(t, tx, t.Context()), "a transaction keeps the scope it began with")
	require.NoError(t, tx.Rollback(t.Context()))
}

// A scope costs no round trip in transactions or if the connection has it already, otherwise one.
func TestScopeCosts(t *testing.T) {
	t.Parallel()
	pool, sent := scoped(t, postgres.SeesNothing)
	forA, forB := postgres.WithTenant(t.Context(), uuid.New()), postgres.WithTenant(t.Context(), uuid.New())
	cost := func(work func()) int {
		before := sent.n.Load()
		work()
		return int(sent.n.Load() - before)
	}
	ask := func(ctx context.Context) func() {
		return func() { visibleTenants(t, pool, ctx) }
	}
	transact := func(ctx context.Context) func() {
		return func() {
			require.NoError(t, postgres.InTx(ctx, pool, func(tx pgx.Tx) error { visibleTenants(t, tx, ctx); return nil }))
		}
	}
	require.Equal(t, 3, cost(ask(forA)), "a new connection is asked for its role")
	require.Equal(t, 1, cost(ask(forA)))
	require.Equal(t, 2, cost(ask(forB)))
	require.Equal(t, 3, cost(transact(forB)))
	require.Equal(t, 3, cost(transact(forA)), "begin, the statement, commit")
	require.Equal(t, 1, cost(ask(forB)), "a transaction leaves the connection as it was")
}

func TestUnscoped(t *testing.T) {
	t.Parallel()
	all, _ := scoped(t, postgres.SeesAll)
	require.Equal(t, "tranche_system ", visibleTenants(t, all, t.Context()))

	user, _ := scoped(t, postgres.SeesAsUser)
	before := visibleTenants(t, user, t.Context())
	require.NotContains(t, before, "tranche_")
	tenant := uuid.New()
	require.Equal(t, "tranche_app "+tenant.String(), visibleTenants(t, user, postgres.WithTenant(t.Context(), tenant)))
	require.Equal(t, before, visibleTenants(t, user, t.Context()))
}
