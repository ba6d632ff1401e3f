package pgtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/migrations"
)

func TestPoolIsMigratedAndItsOwn(t *testing.T) {
	t.Parallel()
	first, second := pgtest.Pool(t), pgtest.Pool(t)
	require.NoError(t, migrations.Behind(t.Context(), first))

	pgtest.Tenant(t, first)
	var inFirst, inSecond int
	require.NoError(t, first.QueryRow(t.Context(), "SELECT count(*) FROM tenants").Scan(&inFirst))
	require.NoError(t, second.QueryRow(t.Context(), "SELECT count(*) FROM tenants").Scan(&inSecond))
	require.Equal(t, 1, inFirst)
	require.Equal(t, 0, inSecond)
}

func TestTxIsRolledBack(t *testing.T) {
	t.Parallel()
	var id string
	t.Run("inserts", func(t *testing.T) {
		id = pgtest.Tenant(t, pgtest.Tx(t)).ID.String()
	})
	var count int
	require.NoError(t, pgtest.Tx(t).QueryRow(t.Context(), "SELECT count(*) FROM tenants WHERE id = $1", id).Scan(&count))
	require.Zero(t, count)
}
