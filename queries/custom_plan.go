package queries

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// CustomPlan returns a db that has PostgreSQL plan each statement with the values of
// its parameters. Lists need it: their best plan depends on the filters and on the
// tenant's share of the table, and a wrong plan is a thousand times slower. A generic
// plan suits the tenant with most rows only.
//
// The db is for Query and QueryRow.
func CustomPlan(db DBTX) DBTX { return customPlan{db} }

type customPlan struct{ DBTX }

// Query implements DBTX.
func (p customPlan) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return p.DBTX.Query(ctx, sql, unprepared(args)...)
}

// QueryRow implements DBTX.
func (p customPlan) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return p.DBTX.QueryRow(ctx, sql, unprepared(args)...)
}

// unprepared adds the mode in which pgx keeps no prepared statement.
func unprepared(args []any) []any { return append([]any{pgx.QueryExecModeDescribeExec}, args...) }
