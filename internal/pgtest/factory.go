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
func NewID(tb testing.TB) uuid.UUID {
	tb.Helper()
	id, err := uuid.NewV7()
	require.NoError(tb, err)
	return id
}

// name is a prefix with the random part of an id.
func name(prefix string, id uuid.UUID) string { return prefix + "-" + hex.EncodeToString(id[8:]) }

// Tenant inserts a tenant.
func Tenant(tb testing.TB, db queries.DBTX, options ...func(*queries.SysTenantInsertParams)) queries.SysTenantInsertParams {
	tb.Helper()
	id := NewID(tb)
	row := queries.SysTenantInsertParams{ID: id, Slug: name("tenant", id)}
	for _, option := range options {
		option(&row)
	}
	require.NoError(tb, queries.New().SysTenantInsert(tb.Context(), db, row))
	return row
}

// Client inserts a client of a tenant, without a secret.
func Client(tb testing.TB, db queries.DBTX, tenantID uuid.UUID, options ...func(*queries.ClientInsertParams)) queries.ClientInsertParams {
	tb.Helper()
	id := NewID(tb)
	row := queries.ClientInsertParams{ID: id, TenantID: tenantID, Name: name("client", id), Scopes: []string{"workflows:read"}}
	for _, option := range options {
		option(&row)
	}
	require.NoError(tb, queries.New().ClientInsert(tb.Context(), db, row))
	return row
}

// Workflow inserts a draft that has one task, the end.
func Workflow(tb testing.TB, db queries.DBTX, tenantID uuid.UUID, options ...func(*queries.WorkflowInsertParams)) queries.Workflow {
	tb.Helper()
	id := NewID(tb)
	row := queries.WorkflowInsertParams{
		ID: id, TenantID: tenantID, Alias: name("workflow", id), Version: 1, Name: "Pre-qualification",
		InputSchema: []byte(`{"type":"object"}`),
		Tasks:       []byte(`[{"id":"done","type":"end","config":{}}]`),
		Edges:       []byte(`[]`),
	}
	for _, option := range options {
		option(&row)
	}
	_, err := queries.New().WorkflowAliasLock(tb.Context(), db, queries.WorkflowAliasLockParams{TenantID: tenantID, Alias: row.Alias})
	require.NoError(tb, err)
	workflow, err := queries.New().WorkflowInsert(tb.Context(), db, row)
	require.NoError(tb, err)
	return workflow
}

// PublishedWorkflow inserts a workflow like Workflow and makes it active.
func PublishedWorkflow(tb testing.TB, db queries.DBTX, tenantID uuid.UUID, options ...func(*queries.WorkflowInsertParams)) queries.Workflow {
	tb.Helper()
	draft := Workflow(tb, db, tenantID, options...)
	workflow, err := queries.New().WorkflowPublish(tb.Context(), db, queries.WorkflowPublishParams{TenantID: tenantID, ID: draft.ID})
	require.NoError(tb, err)
	return workflow
}
