package postgres_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/postgres"
)

func TestArrays(t *testing.T) {
	t.Parallel()
	pool, err := postgres.NewPool(t.Context(), pgtest.EmptyURL(t), postgres.PoolOptions{Conns: 1, Unscoped: postgres.SeesAsUser})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	a, b := uuid.New(), uuid.New()
	requireArrays(t, pool, "uuid", []uuid.UUID{a, uuid.Nil, b}, "{"+a.String()+","+uuid.Nil.String()+","+b.String()+"}")
	requireArrays(t, pool, "text", []string{"a", "", "NULL", `{"b": "é"}`}, `{a,"","NULL","{\"b\": \"é\"}"}`)
	requireArrays(t, pool, "integer", []int32{1, -1 << 31, 1<<31 - 1}, "{1,-2147483648,2147483647}")
	requireArrays(t, pool, "boolean", []bool{true, false}, "{t,f}")
	requireArrays(t, pool, "timestamptz", []time.Time{
		time.Date(2026, 11, 21, 9, 8, 7, 123_456_000, time.UTC), time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC), {},
	}, `{"2026-11-21 09:08:07.123456+00","1969-12-31 23:59:59+00","0001-01-01 00:00:00+00"}`)
}

// requireArrays checks that a list, an empty list and nil come back unchanged.
func requireArrays[T any](t *testing.T, pool *pgxpool.Pool, element string, list []T, want string) {
	t.Helper()
	for _, sent := range [][]T{list, list[:1], {}, nil} {
		var text *string
		var back []T
		err := pool.QueryRow(t.Context(), "SELECT ($1::"+element+"[])::text, $1::"+element+"[]", sent).Scan(&text, &back)
		require.NoError(t, err)
		require.Equal(t, sent, back)
		switch {
		case sent == nil:
			require.Nil(t, text)
		case len(sent) == 0:
			require.Equal(t, "{}", *text)
		case len(sent) == len(list):
			require.Equal(t, want, *text)
		}
	}
}
