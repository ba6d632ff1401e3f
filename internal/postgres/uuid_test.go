package postgres_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/postgres"
)

func TestUUIDs(t *testing.T) {
	t.Parallel()
	pool, err := postgres.NewPool(t.Context(), pgtest.EmptyURL(t), postgres.PoolOptions{Conns: 1, Unscoped: postgres.SeesAsUser})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	a, b := uuid.New(), uuid.New()

	var text string
	var got uuid.UUID
	var pointer *uuid.UUID
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT $1::uuid::text, $1::uuid, $2::uuid", a, &b).Scan(&text, &got, &pointer))
	require.Equal(t, a.String(), text)
	require.Equal(t, a, got)
	require.Equal(t, b, *pointer)

	require.NoError(t, pool.QueryRow(t.Context(), "SELECT $1::uuid, NULL::uuid", (*uuid.UUID)(nil)).Scan(&pointer, &got))
	require.Nil(t, pointer)
	require.Equal(t, uuid.Nil, got)
}
