package queries_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/queries"
)

// A workflow is kept for as long as anything refers to it: an execution, however it
// ended, or a batch of which no execution is left.
func TestWorkflowIsReferenced(t *testing.T) {
	t.Parallel()
	tx, q := pgtest.Tx(t), queries.New()
	tenantID := pgtest.Tenant(t, tx).ID
	isReferenced := func(workflowID uuid.UUID) bool {
		is, err := q.WorkflowIsReferenced(t.Context(), tx, queries.WorkflowIsReferencedParams{TenantID: tenantID, WorkflowID: workflowID})
		require.NoError(t, err)
		return is
	}
	for _, status := range []string{"pending", "running", "completed", "failed", "cancelled", "timeout"} {
		workflowID := pgtest.PublishedWorkflow(t, tx, tenantID).ID
		require.False(t, isReferenced(workflowID))
		pgtest.Execution(t, tx, tenantID, func(row *pgtest.ExecutionRow) { row.WorkflowID, row.Status = workflowID, status })
		require.True(t, isReferenced(workflowID), status)
	}
	workflowID := pgtest.PublishedWorkflow(t, tx, tenantID).ID
	_, err := q.BatchInsert(t.Context(), tx, queries.BatchInsertParams{
		ID: pgtest.NewID(t), TenantID: tenantID, PrincipalID: "tester", Label: "x", Items: []byte("[]"), SourcePackageIds: []uuid.UUID{},
		CreatedAt: time.Now(), WorkflowID: workflowID,
	})
	require.NoError(t, err)
	require.True(t, isReferenced(workflowID), "a batch")
}

// The age of a signal does not matter while its execution has not ended.
func TestSignalsOfOpenExecutionsAreKept(t *testing.T) {
	t.Parallel()
	tx, q := pgtest.Tx(t), queries.New()
	tenantID := pgtest.Tenant(t, tx).ID
	for _, status := range []string{"pending", "running", "completed", "failed", "cancelled", "timeout"} {
		id := pgtest.Execution(t, tx, tenantID, func(row *pgtest.ExecutionRow) { row.Status = status }).ID
		rows, err := q.ExecutionSignalInsert(t.Context(), tx, queries.ExecutionSignalInsertParams{
			TenantID: tenantID, ExecutionID: id, Attempt: 1, TaskPath: status, Payload: []byte("{}"),
		})
		require.NoError(t, err)
		require.EqualValues(t, 1, rows)
	}
	rows, err := q.SysExecutionSignalDeleteOld(t.Context(), tx, queries.SysExecutionSignalDeleteOldParams{Before: time.Now().Add(time.Hour), SignalsMax: 100})
	require.NoError(t, err)
	require.EqualValues(t, 4, rows)
	var kept []string
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT array_agg(task_path ORDER BY task_path) FROM execution_signals WHERE tenant_id = $1`, tenantID).Scan(&kept))
	require.Equal(t, []string{"pending", "running"}, kept)
}

// A batch whose items are deleted, to be read anew, counts none of them.
func TestDeletedItemsAreNotCounted(t *testing.T) {
	t.Parallel()
	tx, q := pgtest.Tx(t), queries.New()
	tenantID, id := pgtest.Tenant(t, tx).ID, pgtest.NewID(t)
	_, err := q.BatchInsert(t.Context(), tx, queries.BatchInsertParams{
		ID: id, TenantID: tenantID, PrincipalID: "tester", Label: "x", Items: []byte("[]"), SourcePackageIds: []uuid.UUID{},
		CreatedAt: time.Now(), WorkflowID: pgtest.PublishedWorkflow(t, tx, tenantID).ID,
	})
	require.NoError(t, err)
	const counters = `ARRAY[items_read, items_total, items_failed, validated_items, fed_until, chunks_fed_until, cardinality(input_columns)]`
	pgtest.Exec(t, tx, `UPDATE execution_batches SET items_read = 9, items_total = 9, items_failed = 4, validated_items = 5,
		fed_until = 9, chunks_fed_until = 9, input_columns = '{a}' WHERE id = $1`, id)
	require.NoError(t, q.BatchItemsDelete(t.Context(), tx, queries.BatchItemsDeleteParams{TenantID: tenantID, BatchID: id}))
	var counted []int
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT `+counters+` FROM execution_batches WHERE id = $1`, id).Scan(&counted))
	require.Equal(t, make([]int, 7), counted)
}
