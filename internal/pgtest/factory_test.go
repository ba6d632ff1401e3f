package pgtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/queries"
)

func TestFactories(t *testing.T) {
	t.Parallel()
	tx := pgtest.Tx(t)
	tenant, other := pgtest.Tenant(t, tx), pgtest.Tenant(t, tx)
	require.NotEqual(t, tenant.Slug, other.Slug)
	named := pgtest.Tenant(t, tx, func(row *queries.SysTenantInsertParams) { row.Slug = "named-" + row.Slug })
	require.Contains(t, named.Slug, "named-tenant-")

	client := pgtest.Client(t, tx, tenant.ID, func(row *queries.ClientInsertParams) { row.IsSandbox = true })
	login, err := queries.New().SysClientGetForLogin(t.Context(), tx, client.ID)
	require.NoError(t, err)
	require.True(t, login.IsSandbox)
	require.Empty(t, login.SecretHashes)

	require.Equal(t, "draft", pgtest.Workflow(t, tx, tenant.ID).Status)
	active := pgtest.PublishedWorkflow(t, tx, tenant.ID, func(row *queries.WorkflowInsertParams) { row.Alias = "re-scoring" })
	require.Equal(t, "active", active.Status)
	require.Equal(t, "re-scoring", active.Alias)
}
