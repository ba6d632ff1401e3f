package queries

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// InMonth returns db for statements about one execution, whose id it takes: they
// run on the partitions of the month in which it was made. Through their parents
// a statement that changes a row opens the tables and indexes of all months, one
// that reads it is planned anew each time, and both take longer than the row.
//
// The statement must not compare the tenant by "=": while a partition has no
// statistics PostgreSQL would keep a plan that reads all executions of the tenant.
//
// It is for Exec and QueryRow and not for transactions: of an id whose month has
// no partition of its own the statement runs through the parents after it has failed,
// and at once of one that is no UUIDv7 and tells no month.
func InMonth(db DBTX, id uuid.UUID) DBTX {
	if id.Version() != 7 {
		return db
	}
	return inMonth{DBTX: db, month: CreatedAt(id).Format("_200601")}
}

type inMonth struct {
	DBTX
	month string // the end of the names of its partitions
}

// of is a statement with the partitions in place of their parents.
func (m inMonth) of(sql string) string {
	sql = strings.ReplaceAll(sql, " executions ", " executions"+m.month+" ")
	return strings.ReplaceAll(sql, " execution_payloads ", " execution_payloads"+m.month+" ")
}

// Exec implements DBTX.
func (m inMonth) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := m.DBTX.Exec(ctx, m.of(sql), args...)
	if hasNoPartition(err) {
		return m.DBTX.Exec(ctx, sql, args...)
	}
	return tag, err
}

// QueryRow implements DBTX.
func (m inMonth) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return rowInMonth{
		Row:     m.DBTX.QueryRow(ctx, m.of(sql), args...),
		through: func() pgx.Row { return m.DBTX.QueryRow(ctx, sql, args...) },
	}
}

// rowInMonth is a row of a partition, or else one through the parents.
type rowInMonth struct {
	pgx.Row
	through func() pgx.Row
}

// Scan implements pgx.Row.
func (r rowInMonth) Scan(into ...any) error {
	err := r.Row.Scan(into...)
	if hasNoPartition(err) {
		return r.through().Scan(into...)
	}
	return err
}

func hasNoPartition(err error) bool {
	const codeUndefinedTable = "42P01"
	refused := (*pgconn.PgError)(nil)
	return errors.As(err, &refused) && refused.Code == codeUndefinedTable
}
