package queries_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/queries"
)

// Every statement of a lease holder changes the execution under the current lease and
// changes nothing under a lost one.
func TestWritesNeedTheLease(t *testing.T) {
	t.Parallel()
	tx, q := pgtest.Tx(t), queries.New()
	tenantID, id, batchID := pgtest.NewID(t), pgtest.NewID(t), pgtest.NewID(t)
	held, lost, now := uuid.New(), uuid.New(), time.Now()
	pgtest.Execution(t, tx, tenantID, func(row *pgtest.ExecutionRow) {
		row.ID, row.BatchID, row.ItemIndex = id, &batchID, new(int32(0))
		row.Status, row.StartedAt, row.State = "running", &now, `{"n":1}`
		row.LeaseToken, row.LeaseInstanceID = &held, &held
	})
	row := func(db pgx.Tx) (text string) {
		require.NoError(t, db.QueryRow(t.Context(), `SELECT concat(e, p) FROM executions e JOIN execution_payloads p ON p.execution_id = e.id WHERE e.id = $1`, id).Scan(&text))
		return text
	}
	state, result := []byte(`{"n":2}`), []byte(`{}`)
	one := func(id uuid.UUID) []uuid.UUID { return []uuid.UUID{id} }
	for name, write := range map[string]func(db pgx.Tx, token uuid.UUID) error{
		"checkpoint": func(db pgx.Tx, token uuid.UUID) error {
			_, err := q.ExecutionCheckpoint(t.Context(), db, queries.ExecutionCheckpointParams{TenantID: tenantID, ID: id, LeaseToken: token, State: state})
			return err
		},
		"finish": func(db pgx.Tx, token uuid.UUID) error {
			_, err := q.ExecutionFinish(t.Context(), db, queries.ExecutionFinishParams{
				TenantID: tenantID, ID: id, Attempt: 1, LeaseToken: token, Status: "completed", StartedAt: now, DeadlineAt: now, CompletedAt: now,
				State: state, Result: result, Tags: []string{},
			})
			return err
		},
		"finish together": func(db pgx.Tx, token uuid.UUID) error {
			_, err := q.SysExecutionFinish(t.Context(), db, queries.SysExecutionFinishParams{
				Ids: one(id), TenantIds: one(tenantID), Attempts: []int32{1}, LeaseTokens: one(token), Statuses: []string{"completed"},
				SourceFailed: []bool{false}, StatusCodes: []int32{200}, TasksCompleted: []int32{1}, TasksFailed: []int32{0},
				StartedAt: []time.Time{now}, DeadlinesAt: []time.Time{now}, CompletedAt: []time.Time{now},
				Tags: []string{"[]"}, States: []string{""}, Results: []string{"{}"},
			})
			return err
		},
		"unlease": func(db pgx.Tx, token uuid.UUID) error {
			_, err := q.ExecutionRelease(t.Context(), db, queries.ExecutionReleaseParams{TenantID: tenantID, ID: id, LeaseToken: token})
			return err
		},
		"let go": func(db pgx.Tx, token uuid.UUID) error {
			_, err := q.ExecutionReleaseForRetry(t.Context(), db, queries.ExecutionReleaseForRetryParams{TenantID: tenantID, ID: id, LeaseToken: token})
			return err
		},
		"release": func(db pgx.Tx, token uuid.UUID) error {
			_, err := q.SysExecutionRelease(t.Context(), db, queries.SysExecutionReleaseParams{
				Ids: one(id), TenantIds: one(tenantID), LeaseTokens: one(token), NeedJobs: []bool{false},
			})
			return err
		},
		"put an item off": func(db pgx.Tx, token uuid.UUID) error {
			_, err := q.BatchItemPostpone(t.Context(), db, queries.BatchItemPostponeParams{TenantID: tenantID, ID: id, BatchID: batchID, LeaseToken: token, State: state})
			return err
		},
		"checkpoint items": func(db pgx.Tx, token uuid.UUID) error {
			_, err := q.BatchItemsCheckpoint(t.Context(), db, queries.BatchItemsCheckpointParams{
				TenantID: tenantID, BatchID: batchID, Ids: one(id), LeaseTokens: one(token), Begins: []bool{true}, StartedAt: []time.Time{now},
				DeadlineAt: []time.Time{now}, States: []string{string(state)}, TasksCompleted: []int32{1}, TasksFailed: []int32{0},
			})
			return err
		},
		"finish items": func(db pgx.Tx, token uuid.UUID) error {
			_, err := q.BatchItemsFinish(t.Context(), db, queries.BatchItemsFinishParams{
				TenantID: tenantID, BatchID: batchID, Ids: one(id), LeaseTokens: one(token), Statuses: []string{"completed"}, SourceFailed: []bool{false},
				StatusCodes: []int32{200}, TasksCompleted: []int32{1}, TasksFailed: []int32{0}, StartedAt: []time.Time{now}, CompletedAt: []time.Time{now},
				Tags: []string{"[]"}, States: []string{""}, Results: []string{"{}"},
			})
			require.ErrorIs(t, err, pgx.ErrNoRows, "there is no batch to count it")
			return nil
		},
	} {
		before := row(tx)
		for token, writes := range map[uuid.UUID]bool{lost: false, held: true} {
			savepoint, err := tx.Begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, write(savepoint, token), name)
			require.Equal(t, writes, row(savepoint) != before, "%s, under its lease: %v", name, writes)
			require.NoError(t, savepoint.Rollback(t.Context()))
		}
	}
}

// An open execution can be leased if no live process has leased it. Its start and its
// deadline do not change.
func TestExecutionLeaseByStatusAndHolder(t *testing.T) {
	t.Parallel()
	tx, q := pgtest.Tx(t), queries.New()
	tenantID, alive, dead := pgtest.NewID(t), pgtest.Instance(t, tx, 0), pgtest.Instance(t, tx, 21*time.Second)
	began, until := time.Now().Add(-time.Minute).Truncate(time.Microsecond), time.Now().Add(time.Minute).Truncate(time.Microsecond)
	for _, tc := range []struct {
		status string
		holder *uuid.UUID
		is     bool
	}{
		{"pending", nil, true},
		{"running", nil, true},
		{"running", &dead, true},
		{"running", &alive, false},
		{"completed", nil, false},
		{"failed", nil, false},
		{"cancelled", nil, false},
		{"timeout", nil, false},
	} {
		id := pgtest.Execution(t, tx, tenantID, func(row *pgtest.ExecutionRow) {
			row.Status, row.StartedAt, row.DeadlineAt, row.LeaseToken, row.LeaseInstanceID = tc.status, &began, &until, tc.holder, tc.holder
		}).ID
		leased, err := q.ExecutionLease(t.Context(), tx, queries.ExecutionLeaseParams{
			TenantID: tenantID, ID: id, LeaseToken: uuid.New(), LeaseProcessID: alive, Now: time.Now(), DeadlineAt: time.Now().Add(time.Hour), DeadAfterSeconds: 20,
		})
		if !tc.is {
			require.ErrorIs(t, err, pgx.ErrNoRows, tc.status)
			continue
		}
		require.NoError(t, err, tc.status)
		startedAt := pgtest.Value[time.Time](t, tx, `SELECT started_at FROM executions WHERE id = $1`, id)
		require.True(t, began.Equal(startedAt) && until.Equal(*leased.DeadlineAt), "%s: %s, %s", tc.status, startedAt, leased.DeadlineAt)
	}
}
