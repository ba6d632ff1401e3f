package queries

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// partitionMark follows the names of the partitioned tables in the statements that
// OnPartition may run.
const partitionMark = " /*partition*/"

// OnPartition returns a db that runs statements about one execution on the
// partitions of the month of its id. It prunes partitions by hand: through the parent
// table, an update opens the tables and indexes of all months, and a select is planned
// again each time. Both take longer than the row itself.
//
// In such a statement each partitioned table has the mark /*partition*/. A statement
// without marks fails. It must not compare tenant_id with "=": PostgreSQL would keep a
// plan that reads all executions of the tenant if the partition has no statistics yet.
//
// The db is for Exec and QueryRow outside of transactions: if the month has no partition,
// the statement fails and then runs on the parent tables. It runs on them at once if
// the id is no UUIDv7.
func OnPartition(db DBTX, id uuid.UUID) DBTX {
	if id.Version() != 7 {
		return db
	}
	return partition{DBTX: db, suffix: CreatedAt(id).Format("_200601")}
}

type partition struct {
	DBTX
	suffix string // of the partitions' names
}

// statement returns a statement on the partitions.
func (p partition) statement(sql string) (string, error) {
	on := strings.ReplaceAll(sql, partitionMark, p.suffix)
	if on == sql {
		return "", fmt.Errorf("the statement has no table with the mark%s: %.40q", partitionMark, sql)
	}
	return on, nil
}

// Exec implements DBTX.
func (p partition) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	on, err := p.statement(sql)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := p.DBTX.Exec(ctx, on, args...)
	if hasNoPartition(err) {
		return p.DBTX.Exec(ctx, sql, args...)
	}
	return tag, err
}

// QueryRow implements DBTX.
func (p partition) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	on, err := p.statement(sql)
	if err != nil {
		return failedRow{err}
	}
	return partitionRow{
		Row:      p.DBTX.QueryRow(ctx, on, args...),
		ofParent: func() pgx.Row { return p.DBTX.QueryRow(ctx, sql, args...) },
	}
}

// partitionRow is a row of a partition. If there is no partition it is the row of the
// parent table.
type partitionRow struct {
	pgx.Row
	ofParent func() pgx.Row
}

// Scan implements pgx.Row.
func (r partitionRow) Scan(into ...any) error {
	err := r.Row.Scan(into...)
	if hasNoPartition(err) {
		return r.ofParent().Scan(into...)
	}
	return err
}

type failedRow struct{ err error }

// Scan implements pgx.Row.
func (r failedRow) Scan(...any) error { return r.err }

func hasNoPartition(err error) bool {
	const codeUndefinedTable = "42P01"
	failure := (*pgconn.PgError)(nil)
	return errors.As(err, &failure) && failure.Code == codeUndefinedTable
}
