package identity_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"tranche/internal/fault"
	"tranche/internal/identity"
)

func TestRoleScopes(t *testing.T) {
	t.Parallel()
	want := map[identity.Role]string{
		identity.RoleAdmin: `workflows:read workflows:write workflows:publish executions:run executions:read executions:data
			batches:run batches:read schedules:write authorizations:read authorizations:write authorizations:sign
			authorizations:delete secrets:write templates:write webhooks:write audit:read`,
		identity.RoleDeveloper: `workflows:read workflows:write workflows:publish executions:run executions:read
			executions:data batches:run batches:read schedules:write secrets:write templates:write`,
		identity.RoleOperator: `workflows:read executions:run executions:read executions:data batches:run batches:read
			schedules:write`,
		identity.RoleIntegration: `workflows:read executions:run executions:read executions:data batches:run batches:read
			authorizations:read authorizations:write authorizations:sign`,
		identity.RoleAuditor: `workflows:read executions:read executions:data batches:read authorizations:read audit:read`,
	}
	require.Len(t, want, len(identity.Roles()))
	for role, scopes := range want {
		var got []string
		for _, scope := range role.Scopes() {
			got = append(got, string(scope))
		}
		require.Empty(t, cmp.Diff(strings.Fields(scopes), got), role)
	}
	require.Empty(t, identity.Role("owner").Scopes())
}

func TestParseScopeAndRole(t *testing.T) {
	t.Parallel()
	for _, scope := range identity.Scopes() {
		parsed, err := identity.ParseScope(string(scope))
		require.NoError(t, err)
		require.Equal(t, scope, parsed)
	}
	for _, name := range []string{"", "*", "workflows:*", "workflows:delete", "WORKFLOWS:READ"} {
		_, err := identity.ParseScope(name)
		require.ErrorIs(t, err, fault.Invalid)
		_, err = identity.ParseRole(name)
		require.ErrorIs(t, err, fault.Invalid)
	}
}

func TestParseLimit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"1": 1, "500": 500, "1000000": 1_000_000, "unlimited": identity.Unlimited} {
		limit, err := identity.ParseLimit("single", text)
		require.NoError(t, err)
		require.Equal(t, identity.Limit{Category: identity.LimitSingle, PerMinute: want}, limit)
		require.Equal(t, text, limit.String())
	}
	for _, text := range []string{"", "0", "-1", "1.5", "many", "1000001", "99999999999999999999"} {
		_, err := identity.ParseLimit("single", text)
		require.ErrorIs(t, err, fault.Invalid, text)
	}
	_, err := identity.ParseLimit("everything", "5")
	require.ErrorIs(t, err, fault.Invalid)
}
