package identity_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/identity"
	"tranche/internal/pgtest"
	"tranche/internal/postgres"
)

// A request of a tenant without limits asks the database nothing: neither to
// verify its token nor to count it.
func TestBudgetOfARequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.setLimits(t, identity.Limit{Category: identity.LimitSingle, PerMinute: identity.Unlimited})
	var counter *pgtest.Counter
	b.pool, counter = pgtest.CountedPool(t, b.pool)
	service, token := b.replica(t), b.token(t)
	ctx := postgres.WithTenant(t.Context(), b.tenant.ID) // as in the service
	require.NoError(t, b.pool.Ping(ctx))
	request := func(category identity.LimitCategory) func() {
		return func() {
			principal, err := service.Verify(ctx, token.AccessToken)
			require.NoError(t, err)
			require.True(t, principal.Has(identity.ScopeExecutionsRun))
			_, err = service.Admit(ctx, principal, category)
			require.NoError(t, err)
		}
	}
	require.Equal(t, pgtest.Cost{Transactions: 1, Trips: 1}, counter.Of(request(identity.LimitSingle)), "the first reads the limits")
	require.Zero(t, counter.Of(request(identity.LimitSingle)))
	require.Equal(t, pgtest.Cost{Transactions: 1, Trips: 1}, counter.Of(request(identity.LimitPolling)), "one that is limited is counted")
}

// A login looks at the failures, counts itself, reads the client and begins a
// family of tokens, whose statement also removes families that are over. The
// first three are for whoever calls and the last for the tenant; each change of
// whose rows the connection sees is a statement too.
func TestBudgetOfALogin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var counter *pgtest.Counter
	b.pool, counter = pgtest.CountedPool(t, b.pool)
	service := b.replica(t)
	login := func() {
		_, err := service.IssueToken(t.Context(), b.credentials.ClientID.String(), b.credentials.Secret, address)
		require.NoError(t, err)
	}
	login()
	require.Equal(t, pgtest.Cost{Transactions: 6, Trips: 6}, counter.Of(login))
}
