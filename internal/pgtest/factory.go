package pgtest

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/queries"
)

// NewID returns a UUIDv7, as every row has one.
func NewID(t testing.TB) uuid.UUID {
	t.Helper()
	id, err := uuid.NewV7()
	require.NoError(t, err)
	return id
}

// Tenant inserts a tenant with a slug of its own.
func Tenant(t testing.TB, db queries.DBTX, options ...func(*queries.SysTenantInsertParams)) queries.SysTenantInsertParams {
	t.Helper()
	id := NewID(t)
	row := queries.SysTenantInsertParams{ID: id, Slug: fmt.Sprintf("tenant-%x", id[8:])}
	for _, option := range options {
		option(&row)
	}
	require.NoError(t, queries.New().SysTenantInsert(t.Context(), db, row))
	return row
}
