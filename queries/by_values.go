package queries

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// ByValues returns db for statements that are planned with the values of their
// parameters, each time. It is for lists: which of their filters and orders a caller
// asks for, and whether most of a table is the caller's tenant's or hardly any,
// decides between plans that are a thousandfold apart. A plan that is kept for all
// is made for whom most rows belong to, and has everybody else look through these.
//
// It is for Query and QueryRow.
func ByValues(db DBTX) DBTX { return byValues{db} }

type byValues struct{ DBTX }

// Query implements DBTX.
func (v byValues) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return v.DBTX.Query(ctx, sql, withMode(args)...)
}

// QueryRow implements DBTX.
func (v byValues) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return v.DBTX.QueryRow(ctx, sql, withMode(args)...)
}

// withMode has a statement parsed with its arguments, and not kept.
func withMode(args []any) []any { return append([]any{pgx.QueryExecModeDescribeExec}, args...) }
