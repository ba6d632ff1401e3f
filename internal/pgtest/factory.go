package pgtest

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/queries"
)

// Each factory inserts one valid row with unique keys and returns it. Options
// change the row before it is inserted. The factories write to the tables
// directly; a test of an invariant uses the package that owns the invariant.

// NewID returns a UUIDv7, the kind of id that every row has.
func NewID(tb testing.TB) uuid.UUID {
	tb.Helper()
	id, err := uuid.NewV7()
	require.NoError(tb, err)
	return id
}

// name returns a prefix followed by the random part of an id.
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

// Workflow inserts a draft whose only task is the end.
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

// ExecutionRow is an execution with its payload.
type ExecutionRow struct {
	ID         uuid.UUID
	TenantID   uuid.UUID
	WorkflowID uuid.UUID
	Status     string
	BatchID    *uuid.UUID
	ItemIndex  *int32
	// SourceFailed says that a data source of the completed execution failed.
	SourceFailed bool
	CreatedAt    time.Time
	StartedAt    *time.Time
	DeadlineAt   *time.Time
	// LeaseToken and LeaseInstanceID are set together.
	LeaseToken      *uuid.UUID
	LeaseInstanceID *uuid.UUID
	// Input is JSON. An empty input inserts no payload.
	Input  string
	State  string // JSON, or empty
	Result string // JSON, or empty
}

// Execution inserts an execution with an empty object for input. Its status is
// pending. Its workflow need not exist.
func Execution(tb testing.TB, db queries.DBTX, tenantID uuid.UUID, options ...func(*ExecutionRow)) ExecutionRow {
	tb.Helper()
	row := ExecutionRow{ID: NewID(tb), TenantID: tenantID, WorkflowID: NewID(tb), Status: "pending", CreatedAt: time.Now(), Input: "{}"}
	for _, option := range options {
		option(&row)
	}
	Exec(tb, db, `INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, status, batch_id, item_index,
			source_failed, created_at, started_at, deadline_at, lease_token, lease_process_id)
		VALUES ($1, $2, $3, 'a', 1, 'tester', $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
		row.ID, row.TenantID, row.WorkflowID, row.Status, row.BatchID, row.ItemIndex,
		row.SourceFailed, row.CreatedAt, row.StartedAt, row.DeadlineAt, row.LeaseToken, row.LeaseInstanceID)
	if row.Input != "" {
		Exec(tb, db, `INSERT INTO execution_payloads (execution_id, tenant_id, input, state, result)
			VALUES ($1, $2, $3::text::json, NULLIF($4::text, '')::json, NULLIF($5::text, '')::json)`,
			row.ID, row.TenantID, row.Input, row.State, row.Result)
	}
	return row
}

// Leased is an option of Execution: a service instance holds its lease.
func Leased(instanceID uuid.UUID) func(*ExecutionRow) {
	return func(row *ExecutionRow) {
		row.LeaseToken, row.LeaseInstanceID = new(uuid.New()), &instanceID
	}
}

// Instance inserts a service instance whose last heartbeat was some time ago,
// and returns its id.
func Instance(tb testing.TB, db queries.DBTX, heartbeatAgo time.Duration) uuid.UUID {
	tb.Helper()
	id := uuid.New()
	Exec(tb, db, "INSERT INTO processes (id, role, heartbeat_at) VALUES ($1, 'all', now() - $2::interval)", id, heartbeatAgo)
	return id
}
