package pgtest

import (
	"encoding/hex"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/queries"
)

// The factories insert one row each, with keys of its own and the least that a
// valid row needs. Options change the row before it is inserted; what is
// inserted comes back. They write tables, past the packages that own the
// invariants: use those where the invariant is what the test is about.

// NewID returns a UUIDv7, as every row has one.
func NewID(t testing.TB) uuid.UUID {
	t.Helper()
	id, err := uuid.NewV7()
	require.NoError(t, err)
	return id
}

// name is a prefix with the random part of an id.
func name(prefix string, id uuid.UUID) string { return prefix + "-" + hex.EncodeToString(id[8:]) }

// Tenant inserts a tenant.
func Tenant(t testing.TB, db queries.DBTX, options ...func(*queries.SysTenantInsertParams)) queries.SysTenantInsertParams {
	t.Helper()
	id := NewID(t)
	row := queries.SysTenantInsertParams{ID: id, Slug: name("tenant", id)}
	for _, option := range options {
		option(&row)
	}
	require.NoError(t, queries.New().SysTenantInsert(t.Context(), db, row))
	return row
}

// Client inserts a client of a tenant, without a secret.
func Client(t testing.TB, db queries.DBTX, tenantID uuid.UUID, options ...func(*queries.ClientInsertParams)) queries.ClientInsertParams {
	t.Helper()
	id := NewID(t)
	row := queries.ClientInsertParams{ID: id, TenantID: tenantID, Name: name("client", id), Scopes: []string{"workflows:read"}}
	for _, option := range options {
		option(&row)
	}
	require.NoError(t, queries.New().ClientInsert(t.Context(), db, row))
	return row
}

// Workflow inserts a draft that has one task, the end.
func Workflow(t testing.TB, db queries.DBTX, tenantID uuid.UUID, options ...func(*queries.WorkflowInsertParams)) queries.Workflow {
	t.Helper()
	id := NewID(t)
	row := queries.WorkflowInsertParams{
		ID: id, TenantID: tenantID, Alias: name("workflow", id), Version: 1, Name: "Pre-qualification",
		InputSchema: []byte(`{"type":"object"}`),
		Tasks:       []byte(`[{"id":"done","type":"end","config":{}}]`),
		Edges:       []byte(`[]`),
	}
	for _, option := range options {
		option(&row)
	}
	_, err := queries.New().WorkflowAliasLock(t.Context(), db, queries.WorkflowAliasLockParams{TenantID: tenantID, Alias: row.Alias})
	require.NoError(t, err)
	workflow, err := queries.New().WorkflowInsert(t.Context(), db, row)
	require.NoError(t, err)
	return workflow
}

// PublishedWorkflow inserts a workflow like Workflow and makes it active.
func PublishedWorkflow(t testing.TB, db queries.DBTX, tenantID uuid.UUID, options ...func(*queries.WorkflowInsertParams)) queries.Workflow {
	t.Helper()
	draft := Workflow(t, db, tenantID, options...)
	workflow, err := queries.New().WorkflowPublish(t.Context(), db, queries.WorkflowPublishParams{TenantID: tenantID, ID: draft.ID})
	require.NoError(t, err)
	return workflow
}
