package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
)

// A row of one tenant cannot refer to a row of another: wherever both tables
// know a tenant, the foreign key carries it.
func TestForeignKeysCarryTheTenant(t *testing.T) {
	t.Parallel()
	rows, err := pgtest.Pool(t).Query(t.Context(), `
		WITH keys AS (
			SELECT c.conname, c.conrelid, c.confrelid,
			       (SELECT array_agg(a.attname::text) FROM pg_attribute a WHERE a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey)) AS own
			FROM pg_constraint c
			WHERE c.contype = 'f' AND c.connamespace = 'public'::regnamespace AND c.conparentid = 0
		)
		SELECT k.conrelid::regclass || ' → ' || k.confrelid::regclass || ' (' || k.conname || ')'
		FROM keys k
		WHERE k.confrelid <> 'tenants'::regclass AND NOT 'tenant_id' = ANY (k.own)
		  AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = k.conrelid AND a.attname = 'tenant_id')
		  AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = k.confrelid AND a.attname = 'tenant_id')
		ORDER BY 1`)
	require.NoError(t, err)
	alone, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, alone, "these foreign keys must name (tenant_id, …)")
}

// Every table that can belong to a tenant says so; those that do not are named
// here with their reason.
func TestTablesNameTheirTenant(t *testing.T) {
	t.Parallel()
	exceptions := map[string]string{
		"tenants":           "is the tenants",
		"signing_keys":      "the service's own",
		"processes":         "the service's own",
		"goose_db_version":  "the service's own",
		"rate_limits":       "the subject is a tenant or a client",
		"rate_limit_hits":   "likewise",
		"attachment_chunks": "pieces of an upload, which names it",
	}
	rows, err := pgtest.Pool(t).Query(t.Context(), `
		SELECT c.relname::text FROM pg_class c
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
		  AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped)
		ORDER BY 1`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, table := range tables {
		require.Contains(t, exceptions, table, "a table without tenant_id")
	}
}
