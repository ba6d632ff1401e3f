package queries_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/queries"
)

// What moves a batch or begins and ends items of it does so in the statuses that it is
// for, whoever paused, cancelled or went on with the batch since it was last read.
func TestBatchStatementsCheckTheStatus(t *testing.T) {
	t.Parallel()
	tx, q := pgtest.Tx(t), queries.New()
	tenantID := pgtest.Tenant(t, tx).ID
	id, item, draft, another := pgtest.NewID(t), pgtest.NewID(t), pgtest.NewID(t), pgtest.NewID(t)
	past, now := time.Now().Add(-time.Hour), time.Now()
	for _, kind := range []uuid.UUID{draft, another} {
		require.NoError(t, q.PackageInsert(t.Context(), tx, queries.PackageInsertParams{ID: kind, TenantID: tenantID, Kind: "output"}))
	}
	rows, err := q.BatchInsert(t.Context(), tx, queries.BatchInsertParams{
		ID: id, TenantID: tenantID, PrincipalID: "tester", Label: "x", Items: []byte("[]"), SourcePackageIds: []uuid.UUID{}, CreatedAt: past,
		WorkflowID: pgtest.PublishedWorkflow(t, tx, tenantID).ID,
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, rows)
	pgtest.Execution(t, tx, tenantID, func(row *pgtest.ExecutionRow) { row.ID, row.BatchID, row.ItemIndex = item, &id, new(int32(0)) })

	all := []string{
		"pending", "pre_processing", "pre_processing_complete", "pre_processing_failed", "processing",
		"post_processing", "post_processing_failed", "complete", "paused", "cancelled",
	}
	goingOn := []string{"pending", "pre_processing", "pre_processing_complete", "processing", "post_processing"}
	const whenever, unlessCancelled, onceCancelled = "", "unless cancelled", "once cancelled"
	for name, tc := range map[string]struct {
		statuses []string
		when     string
		run      func(tx pgx.Tx) error
	}{
		"begin pre-processing": {[]string{"pending", "pre_processing"}, whenever, func(tx pgx.Tx) error {
			_, err := q.BatchPreProcessingBegin(t.Context(), tx, queries.BatchPreProcessingBeginParams{TenantID: tenantID, ID: id})
			return err
		}},
		"insert items": {[]string{"pre_processing"}, whenever, func(tx pgx.Tx) error {
			_, err := q.BatchItemsInsert(t.Context(), tx, queries.BatchItemsInsertParams{TenantID: tenantID, BatchID: id, Attempt: 1, ItemCount: 1, CreatedAt: now, InputColumns: []string{}})
			return err
		}},
		"end pre-processing": {[]string{"pre_processing"}, whenever, func(tx pgx.Tx) error {
			_, err := q.BatchPreProcessingEnd(t.Context(), tx, queries.BatchPreProcessingEndParams{TenantID: tenantID, ID: id, Status: "pre_processing_complete", Result: "valid"})
			return err
		}},
		"begin items": {[]string{"processing"}, unlessCancelled, func(tx pgx.Tx) error {
			_, err := q.BatchItemsCheckpoint(t.Context(), tx, queries.BatchItemsCheckpointParams{
				TenantID: tenantID, BatchID: id, Ids: []uuid.UUID{item}, LeaseTokens: []uuid.UUID{uuid.New()}, Begins: []bool{true}, StartedAt: []time.Time{now},
				DeadlineAt: []time.Time{now}, States: []string{"{}"}, TasksCompleted: []int32{0}, TasksFailed: []int32{0},
			})
			return err
		}},
		"cancel items": {[]string{"processing"}, onceCancelled, func(tx pgx.Tx) error {
			_, err := q.BatchItemsCancel(t.Context(), tx, queries.BatchItemsCancelParams{TenantID: tenantID, BatchID: id, ItemsMax: 10, StatusCode: 500, Result: []byte("{}")})
			return err
		}},
		"retry items": {[]string{"processing"}, whenever, func(tx pgx.Tx) error {
			_, err := q.BatchItemsRetry(t.Context(), tx, queries.BatchItemsRetryParams{TenantID: tenantID, BatchID: id, Attempt: 1, NextItem: 1})
			return err
		}},
		"end of a retry's items": {[]string{"processing"}, whenever, func(tx pgx.Tx) error {
			_, err := q.BatchRetryEnd(t.Context(), tx, queries.BatchRetryEndParams{TenantID: tenantID, ID: id, Attempt: 1})
			return err
		}},
		"end processing": {[]string{"processing"}, whenever, func(tx pgx.Tx) error {
			return q.BatchProcessingEnd(t.Context(), tx, queries.BatchProcessingEndParams{TenantID: tenantID, ID: id})
		}},
		"begin a package": {[]string{"post_processing"}, whenever, func(tx pgx.Tx) error {
			_, err := q.BatchPackageBegin(t.Context(), tx, queries.BatchPackageBeginParams{TenantID: tenantID, ID: id, Attempt: 1, OldPackageID: &draft, NewPackageID: another})
			return err
		}},
		"begin a package for another attempt": {nil, whenever, func(tx pgx.Tx) error {
			_, err := q.BatchPackageBegin(t.Context(), tx, queries.BatchPackageBeginParams{TenantID: tenantID, ID: id, Attempt: 2, OldPackageID: &draft, NewPackageID: another})
			return err
		}},
		"replace a package of another writer": {nil, whenever, func(tx pgx.Tx) error {
			_, err := q.BatchPackageBegin(t.Context(), tx, queries.BatchPackageBeginParams{TenantID: tenantID, ID: id, Attempt: 1, OldPackageID: &another, NewPackageID: another})
			return err
		}},
		"complete": {[]string{"post_processing"}, whenever, func(tx pgx.Tx) error {
			_, err := q.BatchComplete(t.Context(), tx, queries.BatchCompleteParams{TenantID: tenantID, ID: id, PackageID: draft})
			return err
		}},
		"complete with a package of another writer": {nil, whenever, func(tx pgx.Tx) error {
			_, err := q.BatchComplete(t.Context(), tx, queries.BatchCompleteParams{TenantID: tenantID, ID: id, PackageID: another})
			return err
		}},
		"give the output up": {[]string{"post_processing"}, whenever, func(tx pgx.Tx) error {
			_, err := q.BatchPostProcessingFail(t.Context(), tx, queries.BatchPostProcessingFailParams{TenantID: tenantID, ID: id, Notice: []byte("[]")})
			return err
		}},
		"pause": {goingOn, unlessCancelled, func(tx pgx.Tx) error {
			_, err := q.BatchPause(t.Context(), tx, queries.BatchPauseParams{TenantID: tenantID, ID: id})
			return err
		}},
		"resume": {[]string{"paused"}, whenever, func(tx pgx.Tx) error {
			_, err := q.BatchResume(t.Context(), tx, queries.BatchResumeParams{TenantID: tenantID, ID: id})
			return err
		}},
		"cancel": {append(slices.Clone(goingOn), "paused"), unlessCancelled, func(tx pgx.Tx) error {
			_, err := q.BatchCancelRequest(t.Context(), tx, queries.BatchCancelRequestParams{TenantID: tenantID, ID: id, Unread: "x"})
			return err
		}},
	} {
		for _, status := range all {
			for _, isCancelled := range []bool{false, true} {
				savepoint, err := tx.Begin(t.Context())
				require.NoError(t, err)
				pgtest.Exec(t, savepoint, `UPDATE execution_batches SET status = $2, paused_from = CASE $2 WHEN 'paused' THEN 'processing' END,
					cancel_requested_at = CASE WHEN $3 THEN $4::timestamptz END, draft_package_id = $5, retry_mode = 'failed_items', retry_from = 0 WHERE id = $1`, id, status, isCancelled, past, draft)
				row := func() (text string) {
					require.NoError(t, savepoint.QueryRow(t.Context(), `SELECT concat(b, e) FROM execution_batches b JOIN executions e ON e.batch_id = b.id WHERE b.id = $1`, id).Scan(&text))
					return text
				}
				before := row()
				if err := tc.run(savepoint); err != nil {
					require.ErrorIs(t, err, pgx.ErrNoRows, "%s of one that is %s", name, status)
				}
				acts := slices.Contains(tc.statuses, status) && (tc.when == whenever || isCancelled == (tc.when == onceCancelled))
				require.Equal(t, acts, row() != before, "%s of one that is %s, cancelled: %v", name, status, isCancelled)
				require.NoError(t, savepoint.Rollback(t.Context()))
			}
		}
	}
}
