package queries_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/queries"
)

// The statements that count, measure and list the items of a retry select the same items:
// failed, cancelled and timed-out ones, and completed ones whose source failed.
func TestItemsToRetry(t *testing.T) {
	t.Parallel()
	tx, q := pgtest.Tx(t), queries.New()
	tenantID, batchID := pgtest.NewID(t), pgtest.NewID(t)
	const items = 8
	for i, status := range []string{"completed", "completed", "failed", "cancelled", "timeout", "pending", "running", "failed"} {
		pgtest.Execution(t, tx, tenantID, func(row *pgtest.ExecutionRow) {
			row.Status, row.BatchID, row.ItemIndex, row.SourceFailed = status, &batchID, new(int32(i)), i == 1 || i == items-1
		})
	}
	for _, tc := range []struct {
		failed, sourceFailed bool
		want                 []int32
	}{
		{true, false, []int32{2, 3, 4, 7}},
		{false, true, []int32{1}},
		{true, true, []int32{1, 2, 3, 4, 7}},
		{false, false, nil},
	} {
		count, err := q.BatchItemsCount(t.Context(), tx, queries.BatchItemsCountParams{TenantID: tenantID, BatchID: batchID, Failed: tc.failed, SourceFailed: tc.sourceFailed})
		require.NoError(t, err)
		require.EqualValues(t, []int{items, len(tc.want)}, []int{int(count.Kept), int(count.ToRetry)})
		sizes, err := q.BatchItemsListRetrySizes(t.Context(), tx, queries.BatchItemsListRetrySizesParams{
			TenantID: tenantID, BatchID: batchID, ItemsMax: 100, Failed: tc.failed, SourceFailed: tc.sourceFailed,
		})
		require.NoError(t, err)
		var measured []int32
		for _, size := range sizes {
			measured = append(measured, size.ItemIndex)
		}
		require.Equal(t, tc.want, measured)
		taken, err := q.BatchItemsListRetryable(t.Context(), tx, queries.BatchItemsListRetryableParams{
			TenantID: tenantID, BatchID: batchID, EndItem: items, Failed: tc.failed, SourceFailed: tc.sourceFailed,
		})
		require.NoError(t, err)
		require.Len(t, taken, len(tc.want))
	}
}

// An item that is made ready again has nothing left of its run but its id: no end, no
// time limit, no tags. It is made so once, and one that is refused has failed once more.
func TestBatchItemsRetryResetsItems(t *testing.T) {
	t.Parallel()
	tx, q := pgtest.Tx(t), queries.New()
	tenantID, id := pgtest.Tenant(t, tx).ID, pgtest.NewID(t)
	_, err := q.BatchInsert(t.Context(), tx, queries.BatchInsertParams{
		ID: id, TenantID: tenantID, PrincipalID: "tester", Label: "x", Items: []byte("[]"), SourcePackageIds: []uuid.UUID{},
		CreatedAt: time.Now(), WorkflowID: pgtest.PublishedWorkflow(t, tx, tenantID).ID,
	})
	require.NoError(t, err)
	pgtest.Exec(t, tx, `UPDATE execution_batches SET status = 'processing', retry_mode = 'failed_and_unsuccessful_sources_items', retry_from = 0,
		items_total = 3, items_completed = 1, items_failed = 2, items_source_failed = 1 WHERE id = $1`, id)
	var items []uuid.UUID
	for i, status := range []string{"completed", "timeout", "failed"} {
		items = append(items, pgtest.NewID(t))
		pgtest.Exec(t, tx, `INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, status, is_success, source_failed,
				status_code, created_at, started_at, completed_at, deadline_at, batch_id, item_index, tags)
			VALUES ($1, $2, $2, 'a', 1, 'tester', $3, $3 = 'completed', $3 = 'completed', 500, now(), now(), now(), now(), $4, $5, '{a}')`, items[i], tenantID, status, id, i)
		pgtest.Exec(t, tx, `INSERT INTO execution_payloads (execution_id, tenant_id, input, result) VALUES ($1, $2, '{}', '{}')`, items[i], tenantID)
	}
	for range 2 { // the second one changes nothing
		_, err = q.BatchItemsRetry(t.Context(), tx, queries.BatchItemsRetryParams{
			TenantID: tenantID, BatchID: id, Attempt: 1, FirstItem: 0, NextItem: 3, Completed: 1, Failed: 1,
			Ids: items[:2], States: []string{"", ""}, TasksCompleted: []int32{0, 0}, RefusedIds: items[2:],
		})
		require.NoError(t, err)
	}
	retried := pgtest.Values[string](t, tx, `SELECT concat_ws(' ', e.status, e.attempt, e.is_success, e.source_failed, e.status_code, e.started_at, e.completed_at, e.deadline_at, e.tags, p.result)
		FROM executions e JOIN execution_payloads p ON p.execution_id = e.id WHERE e.batch_id = $1 AND e.id <> $2 ORDER BY e.item_index`, id, items[2])
	require.Equal(t, []string{"pending 2 f f {}", "pending 2 f f {}"}, retried)
	require.Equal(t, "failed 2", pgtest.Text(t, tx, `SELECT concat_ws(' ', status, attempt) FROM executions WHERE id = $1`, items[2]))
	require.Equal(t, "3 0 1 0", pgtest.Text(t, tx,
		`SELECT concat_ws(' ', items_total, items_completed, items_failed, items_source_failed) FROM execution_batches WHERE id = $1`, id))
}
