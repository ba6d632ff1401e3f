package identity_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/fault"
	"tranche/internal/identity"
	"tranche/internal/pgtest"
)

func TestCreateTenant(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, slug := range []string{"a", "acme", "0-acme-1", strings.Repeat("a", 63)} {
		tenant, err := identity.CreateTenant(t.Context(), pool, slug)
		require.NoError(t, err)
		found, err := identity.FindTenant(t.Context(), pool, slug)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(tenant, found))
	}
	_, err := identity.CreateTenant(t.Context(), pool, "acme")
	require.ErrorIs(t, err, fault.Conflict)
	for _, slug := range []string{"", "-acme", "Acme", "ac me", "acme\n", "ácme", strings.Repeat("a", 64)} {
		_, err := identity.CreateTenant(t.Context(), pool, slug)
		require.ErrorIs(t, err, fault.Invalid, slug)
	}
	_, err = identity.FindTenant(t.Context(), pool, "nobody")
	require.ErrorIs(t, err, fault.NotFound)
}

func TestCreateClientRefuses(t *testing.T) {
	t.Parallel()
	tx := pgtest.Tx(t)
	tenant, err := identity.CreateTenant(t.Context(), tx, "acme")
	require.NoError(t, err)
	revoked := tenant
	revoked.RevokedAt = &tenant.CreatedAt
	scopes := identity.Scopes()
	for name, c := range map[string]struct {
		client identity.NewClient
		kind   fault.Kind
	}{
		"no scope":       {identity.NewClient{Tenant: tenant, Name: "n"}, fault.Invalid},
		"no name":        {identity.NewClient{Tenant: tenant, Scopes: scopes}, fault.Invalid},
		"long name":      {identity.NewClient{Tenant: tenant, Name: strings.Repeat("é", 129), Scopes: scopes}, fault.Invalid},
		"line break":     {identity.NewClient{Tenant: tenant, Name: "a\nb", Scopes: scopes}, fault.Invalid},
		"broken text":    {identity.NewClient{Tenant: tenant, Name: "a\xff", Scopes: scopes}, fault.Invalid},
		"revoked tenant": {identity.NewClient{Tenant: revoked, Name: "n", Scopes: scopes}, fault.Conflict},
	} {
		_, err := identity.CreateClient(t.Context(), tx, c.client)
		require.ErrorIs(t, err, c.kind, name)
	}
	_, err = identity.CreateClient(t.Context(), tx, identity.NewClient{Tenant: tenant, Name: strings.Repeat("é", 128), Scopes: scopes})
	require.NoError(t, err)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	tenant, err := identity.CreateTenant(t.Context(), pool, "acme")
	require.NoError(t, err)
	other, err := identity.CreateTenant(t.Context(), pool, "other")
	require.NoError(t, err)
	set := func(limits ...identity.Limit) {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return identity.SetLimits(t.Context(), tx, tenant.ID, limits)
		}))
	}
	want := func(tenant identity.Tenant, limits ...identity.Limit) {
		got, err := identity.Limits(t.Context(), pool, tenant.ID)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(limits, got))
	}
	want(tenant, identity.DefaultLimits()...)

	set(identity.Limit{Category: identity.LimitSingle}, identity.Limit{Category: identity.LimitBatch, PerMinute: 3})
	set(identity.Limit{Category: identity.LimitBatch, PerMinute: 7})
	want(tenant,
		identity.Limit{Category: identity.LimitManagement, PerMinute: 100},
		identity.Limit{Category: identity.LimitSingle, PerMinute: identity.Unlimited},
		identity.Limit{Category: identity.LimitBatch, PerMinute: 7},
		identity.Limit{Category: identity.LimitPolling, PerMinute: 200},
		identity.Limit{Category: identity.LimitAuthorizations, PerMinute: 100},
	)
	want(other, identity.DefaultLimits()...)
}
