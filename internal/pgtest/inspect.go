package pgtest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/queries"
)

const (
	waitTimeMax      = 30 * time.Second // much longer than any wait on a busy machine
	waitPollInterval = 5 * time.Millisecond
)

// Exec runs a statement and returns how many rows it changed.
func Exec(tb testing.TB, db queries.DBTX, sql string, args ...any) int64 {
	tb.Helper()
	tag, err := db.Exec(tb.Context(), sql, args...)
	require.NoError(tb, err, sql)
	return tag.RowsAffected()
}

// Value returns the single column of the single row that a query selects.
func Value[T any](tb testing.TB, db queries.DBTX, sql string, args ...any) (value T) {
	tb.Helper()
	require.NoError(tb, db.QueryRow(tb.Context(), sql, args...).Scan(&value), sql)
	return value
}

// Text is Value for a text.
func Text(tb testing.TB, db queries.DBTX, sql string, args ...any) string {
	tb.Helper()
	return Value[string](tb, db, sql, args...)
}

// Values returns the single column of all rows that a query selects.
func Values[T any](tb testing.TB, db queries.DBTX, sql string, args ...any) []T {
	tb.Helper()
	rows, err := db.Query(tb.Context(), sql, args...)
	require.NoError(tb, err, sql)
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(tb, err, sql)
	return values
}

// Count returns how many rows of a table satisfy a condition. An empty condition
// counts all rows.
func Count(tb testing.TB, db queries.DBTX, table, condition string, args ...any) int {
	tb.Helper()
	if condition == "" {
		condition = "true"
	}
	return Value[int](tb, db, "SELECT count(*) FROM "+table+" WHERE "+condition, args...)
}

// CountJobs returns how many jobs of a kind are recorded. An empty kind counts
// all jobs.
func CountJobs(tb testing.TB, db queries.DBTX, kind string) int {
	tb.Helper()
	return Count(tb, db, "river.river_job", "kind = $1 OR $1 = ''", kind)
}

// ExecutionStatus returns the status of an execution.
func ExecutionStatus(tb testing.TB, db queries.DBTX, id uuid.UUID) string {
	tb.Helper()
	return Text(tb, db, "SELECT status FROM executions WHERE id = $1", id)
}

// BatchStatus returns the status of a batch.
func BatchStatus(tb testing.TB, db queries.DBTX, id uuid.UUID) string {
	tb.Helper()
	return Text(tb, db, "SELECT status FROM execution_batches WHERE id = $1", id)
}

// WaitFor waits until a condition holds. It fails the test after half a minute.
func WaitFor(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	for end := time.Now().Add(waitTimeMax); !condition(); time.Sleep(waitPollInterval) {
		require.True(tb, time.Now().Before(end), "timed out waiting for %s", what)
	}
}

// WaitForCount waits until so many rows of a table satisfy a condition.
func WaitForCount(tb testing.TB, db queries.DBTX, want int, table, condition string, args ...any) {
	tb.Helper()
	WaitFor(tb, table+" with "+condition, func() bool { return Count(tb, db, table, condition, args...) == want })
}

// WaitForExecution waits until an execution has a status.
func WaitForExecution(tb testing.TB, db queries.DBTX, id uuid.UUID, status string) {
	tb.Helper()
	WaitFor(tb, "the execution to be "+status, func() bool { return ExecutionStatus(tb, db, id) == status })
}

// WaitForBatch waits until a batch has a status.
func WaitForBatch(tb testing.TB, db queries.DBTX, id uuid.UUID, status string) {
	tb.Helper()
	WaitFor(tb, "the batch to be "+status, func() bool { return BatchStatus(tb, db, id) == status })
}

// WaitForLockWaits waits until so many sessions of the test's database wait for
// a lock.
func WaitForLockWaits(tb testing.TB, db queries.DBTX, sessions int) {
	tb.Helper()
	WaitForCount(tb, db, sessions, "pg_stat_activity", "datname = current_database() AND wait_event_type = 'Lock'")
}

// WaitForTableLockWait waits until a session waits for a lock on a table.
func WaitForTableLockWait(tb testing.TB, db queries.DBTX, table string) {
	tb.Helper()
	WaitFor(tb, "a lock wait on "+table, func() bool {
		return Count(tb, db, "pg_locks", "NOT granted AND relation = $1::text::regclass", table) > 0
	})
}

// WaitForBlockedBy waits until so many sessions wait for a transaction.
func WaitForBlockedBy(tb testing.TB, db queries.DBTX, tx pgx.Tx, sessions int) {
	tb.Helper()
	WaitForCount(tb, db, sessions, "pg_stat_activity", "$1::integer = ANY (pg_blocking_pids(pid))", tx.Conn().PgConn().PID())
}

// TerminateSessions ends all other sessions of the test's database, as a
// restarted server does.
func TerminateSessions(tb testing.TB, db queries.DBTX) {
	tb.Helper()
	Exec(tb, db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
}
