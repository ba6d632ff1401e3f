package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/postgres"
	"tranche/migrations"
)

// unprotected are the tables whose rows every connection of the application may
// read, with the reason (docs/decisions/tenant-isolation.md).
var unprotected = map[string]string{
	"executions":       "its lists need an index that row-level security keeps from use; what is written to it is checked all the same",
	"tenants":          "is the tenants; names and times",
	"tenant_limits":    "numbers, read for all tenants at once",
	"signing_keys":     "the service's own; only the system may read it",
	"processes":        "the service's own",
	"goose_db_version": "the service's own",
	"rate_limits":      "numbers, of a tenant or a client",
	"rate_limit_hits":  "likewise",
}

func tables(t *testing.T, db *pgxpool.Pool, where string) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), `SELECT c.relname::text FROM pg_class c
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND `+where+` ORDER BY 1`)
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return names
}

// Every table is protected by the same two policies or is an exception.
func TestEveryTableIsProtected(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	protected := tables(t, pool, `c.relrowsecurity AND c.relforcerowsecurity
		AND (SELECT array_agg(concat_ws(' ', polname, polcmd, pg_get_userbyid(polroles[1])) ORDER BY polname) FROM pg_policy WHERE polrelid = c.oid)
			= '{of_all * tranche_system,of_tenant * tranche_app}'`)
	require.Equal(t, slices.Sorted(maps.Keys(unprotected)), tables(t, pool, `NOT c.relname = ANY (ARRAY['`+strings.Join(protected, "','")+`'])`),
		"a new table of tenants is for tenant_rows_protect in its migration")
}

// own is a database whose tables each have one row of two tenants, and pools on
// it: one that may do everything and one as the service's.
type own struct {
	owner, app *pgxpool.Pool
	tenants    [2]uuid.UUID
	rows       map[string][2]string // of a table: the rows as SQL, "(columns) VALUES (values)"
}

func seedTenants(t *testing.T, names []string) *own {
	t.Helper()
	url := pgtest.URL(t)
	o := &own{owner: pgtest.OpenPool(t, url), tenants: [2]uuid.UUID{uuid.New(), uuid.New()}, rows: map[string][2]string{}}
	app, err := postgres.NewPool(t.Context(), url, postgres.PoolOptions{Name: t.Name(), Conns: 2})
	require.NoError(t, err)
	t.Cleanup(app.Close)
	o.app = app
	// What rows mean, and whether keys exist elsewhere, is not what this is about.
	_, err = o.owner.Exec(t.Context(), `DO $$ DECLARE c record; BEGIN
		FOR c IN SELECT conrelid::regclass AS name, conname FROM pg_constraint
			WHERE contype = 'c' AND connamespace = 'public'::regnamespace AND coninhcount = 0 AND conrelid <> 0 LOOP
			EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.name, c.conname);
		END LOOP; END $$`)
	require.NoError(t, err)
	for _, name := range names {
		var rows [2]string
		for i, tenant := range o.tenants {
			rows[i] = leastRow(t, o.owner, name, tenant)
			require.NoError(t, pgx.BeginFunc(t.Context(), o.owner, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `SET LOCAL session_replication_role = replica; INSERT INTO `+name+rows[i])
				return err
			}), name)
		}
		o.rows[name] = rows
	}
	return o
}

// leastRow is a row of a table, of the least that its columns' types allow.
func leastRow(t *testing.T, db *pgxpool.Pool, table string, tenant uuid.UUID) string {
	t.Helper()
	var columns, values string
	require.NoError(t, db.QueryRow(t.Context(), `
		SELECT string_agg(quote_ident(a.attname), ', '), string_agg(CASE
			WHEN a.attname = 'tenant_id' THEN quote_literal($2::text)
			WHEN t.typcategory = 'A' THEN quote_literal('{}')
			WHEN t.typname = 'timestamptz' THEN 'now()'
			WHEN t.typname = 'json' THEN quote_literal('{}')
			WHEN t.typname = 'bool' THEN 'false'
			WHEN t.typcategory = 'N' THEN '1'
			ELSE quote_literal($3::text) END, ', ')
		FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
		WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped
		  AND (a.attname = 'tenant_id' OR a.attnotnull AND NOT a.atthasdef)`,
		table, tenant.String(), pgtest.NewID(t).String()).Scan(&columns, &values))
	return "(" + columns + ") VALUES (" + values + ")"
}

// The policies hold, table by table: with one tenant set another's rows are not
// seen, changed, removed or written, without one nothing is, and the system sees
// all.
func TestRowsAreVisibleToTheirTenantOnly(t *testing.T) {
	t.Parallel()
	names := tables(t, pgtest.Pool(t), `c.relrowsecurity AND EXISTS (
		SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id')`)
	require.Contains(t, names, "execution_payloads")
	o := seedTenants(t, names)
	asFirst := postgres.WithTenant(t.Context(), o.tenants[0])
	second := o.tenants[1].String()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			seen := func(ctx context.Context, where string) (n int) {
				require.NoError(t, o.app.QueryRow(ctx, `SELECT count(*) FROM `+name+` WHERE `+where).Scan(&n))
				return n
			}
			if unprotected[name] == "" {
				require.Equal(t, 0, seen(t.Context(), "true"), "without a tenant")
				require.Equal(t, 1, seen(asFirst, "true"), "the tenant's own")
				require.Equal(t, 0, seen(asFirst, "tenant_id = '"+second+"'"))
				require.Equal(t, 2, seen(postgres.AsSystem(t.Context()), "true"))
			}
			tag, err := o.app.Exec(asFirst, "UPDATE "+name+" SET tenant_id = tenant_id")
			require.True(t, isRefused(err) || tag.RowsAffected() == 1, "its own alone: %v %v", tag, err)
			for _, statement := range []string{
				"UPDATE " + name + " SET tenant_id = '" + second + "'",
				"UPDATE " + name + " SET tenant_id = tenant_id WHERE tenant_id = '" + second + "'",
				"DELETE FROM " + name + " WHERE tenant_id = '" + second + "'",
				"INSERT INTO " + name + o.rows[name][1],
			} {
				for _, ctx := range []context.Context{asFirst, t.Context()} {
					tag, err := o.app.Exec(ctx, statement)
					require.True(t, isRefused(err) || err == nil && tag.RowsAffected() == 0, "%s: %v %v", statement, tag, err)
				}
			}
		})
	}
}

// What runs on a partition of executions is held to the policies of its parent,
// and does not add or remove rows.
func TestPartitionsAreProtectedAsTheirParents(t *testing.T) {
	t.Parallel()
	names := []string{"executions", "execution_payloads"}
	o := seedTenants(t, names)
	// One that is made while the service runs, of a process of the version before too.
	for _, statement := range []string{"SELECT execution_partitions_make(5)", "SELECT execution_partitions_provide(6)"} {
		_, err := o.app.Exec(postgres.AsSystem(t.Context()), statement)
		require.NoError(t, err)
	}
	// And one that was restored without privileges.
	_, err := o.owner.Exec(t.Context(), "REVOKE ALL ON execution_payloads"+time.Now().UTC().Format("_200601")+" FROM tranche_app, tranche_system")
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), o.owner))
	var partitions, different int
	require.NoError(t, o.owner.QueryRow(t.Context(), `
		WITH protection AS (
			SELECT c.oid, c.relrowsecurity, (
				SELECT array_agg(concat_ws(' ', polname, polcmd, polpermissive, polroles, pg_get_expr(polqual, c.oid), pg_get_expr(polwithcheck, c.oid)) ORDER BY polname)
				FROM pg_policy WHERE polrelid = c.oid) AS policies
			FROM pg_class c)
		SELECT count(*), count(*) FILTER (WHERE (p.relrowsecurity, p.policies) IS DISTINCT FROM (true, of_parent.policies))
		FROM pg_inherits i JOIN protection p ON p.oid = i.inhrelid JOIN protection of_parent ON of_parent.oid = i.inhparent
		WHERE i.inhparent = ANY ($1::text[]::regclass[])`, names).Scan(&partitions, &different))
	require.Equal(t, 14, partitions)
	require.Zero(t, different)

	asFirst, second := postgres.WithTenant(t.Context(), o.tenants[0]), o.tenants[1].String()
	for _, name := range names {
		partition := name + time.Now().UTC().Format("_200601")
		for _, tc := range []struct {
			ctx       context.Context
			statement string
			rows      int64 // -1: refused
		}{
			{asFirst, "UPDATE %s SET tenant_id = tenant_id", 1},
			{asFirst, "UPDATE %s SET tenant_id = tenant_id WHERE tenant_id = '" + second + "'", 0},
			{asFirst, "UPDATE %s SET tenant_id = '" + second + "'", -1},
			{asFirst, "INSERT INTO %s" + o.rows[name][0], -1},
			{asFirst, "DELETE FROM %s", -1},
			{t.Context(), "UPDATE %s SET tenant_id = tenant_id", 0},
			{postgres.AsSystem(t.Context()), "UPDATE %s SET tenant_id = tenant_id", 2},
			{postgres.AsSystem(t.Context()), "DELETE FROM %s", -1},
		} {
			statement := fmt.Sprintf(tc.statement, partition)
			tag, err := o.app.Exec(tc.ctx, statement)
			if tc.rows < 0 {
				require.True(t, isRefused(err), "%s: %v", statement, err)
				continue
			}
			require.NoError(t, err, statement)
			require.Equal(t, tc.rows, tag.RowsAffected(), statement)
		}
	}
	seen := func(ctx context.Context) (n int) {
		require.NoError(t, o.app.QueryRow(ctx, "SELECT count(*) FROM execution_payloads"+time.Now().UTC().Format("_200601")).Scan(&n))
		return n
	}
	require.Equal(t, []int{0, 1, 2}, []int{seen(t.Context()), seen(asFirst), seen(postgres.AsSystem(t.Context()))})
}

// isRefused reports whether the role or a policy may not do it, or nobody.
func isRefused(err error) bool {
	refused := (*pgconn.PgError)(nil)
	return errors.As(err, &refused) && (refused.Code == "42501" || refused.Code == "P0001")
}

// A piece of a file has no tenant of its own.
func TestChunksAreOfTheirUploadsTenant(t *testing.T) {
	t.Parallel()
	o := seedTenants(t, []string{"attachment_uploads"})
	for i, data := range []string{"first", "second"} {
		_, err := o.owner.Exec(t.Context(), `INSERT INTO attachment_chunks SELECT id, 0, $2 FROM attachment_uploads WHERE tenant_id = $1`, o.tenants[i], []byte(data))
		require.NoError(t, err)
	}
	seen := func(ctx context.Context) (text string) {
		require.NoError(t, o.app.QueryRow(ctx, `SELECT coalesce(string_agg(convert_from(data, 'UTF8'), ',' ORDER BY data), '') FROM attachment_chunks`).Scan(&text))
		return text
	}
	asFirst := postgres.WithTenant(t.Context(), o.tenants[0])
	require.Empty(t, seen(t.Context()))
	require.Equal(t, "first", seen(asFirst))
	require.Equal(t, "first,second", seen(postgres.AsSystem(t.Context())))
	var others uuid.UUID
	require.NoError(t, o.owner.QueryRow(t.Context(), `SELECT id FROM attachment_uploads WHERE tenant_id = $1`, o.tenants[1]).Scan(&others))
	_, err := o.app.Exec(asFirst, `INSERT INTO attachment_chunks VALUES ($1, 1, '')`, others)
	require.True(t, isRefused(err), "%v", err)
}

// The roles of the application own nothing and cannot lift what binds them.
func TestRolesOwnNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	owner := pgtest.OpenPool(t, url)
	for query, want := range map[string]string{
		`SELECT count(*)::text FROM pg_shdepend WHERE deptype = 'o' AND refobjid IN ('tranche_app'::regrole, 'tranche_system'::regrole)`: "0",
		`SELECT string_agg(concat_ws(' ', rolname, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolcanlogin), ', ' ORDER BY rolname)
			FROM pg_roles WHERE rolname IN ('tranche_app', 'tranche_system')`: "tranche_app f f f f f, tranche_system f f f f f",
		`SELECT (pg_has_role('tranche_app', 'tranche_system', 'MEMBER') OR pg_has_role('tranche_system', 'tranche_app', 'MEMBER'))::text`: "false",
	} {
		var got string
		require.NoError(t, owner.QueryRow(t.Context(), query).Scan(&got))
		require.Equal(t, want, got, query)
	}
	app, err := postgres.NewPool(t.Context(), url, postgres.PoolOptions{Name: t.Name(), Conns: 2})
	require.NoError(t, err)
	t.Cleanup(app.Close)
	for _, statement := range []string{
		"ALTER TABLE secrets DISABLE ROW LEVEL SECURITY",
		"ALTER TABLE secrets NO FORCE ROW LEVEL SECURITY",
		"DROP POLICY of_tenant ON secrets",
		"CREATE POLICY mine ON secrets USING (true)",
		"TRUNCATE secrets",
		"DROP TABLE secrets",
		"CREATE OR REPLACE FUNCTION current_tenant() RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid'",
		"SET row_security = off; SELECT FROM secrets",
	} {
		for _, ctx := range []context.Context{t.Context(), postgres.WithTenant(t.Context(), uuid.New()), postgres.AsSystem(t.Context())} {
			if strings.HasPrefix(statement, "SET row_security") && ctx != t.Context() {
				continue // the setting would stay
			}
			_, err := app.Exec(ctx, statement)
			require.True(t, isRefused(err), "%s: %v", statement, err)
		}
	}
	for _, statement := range []string{"SELECT FROM signing_keys", "SELECT execution_partitions_make(1)", "SELECT execution_partitions_provide(1)", "SELECT execution_partitions_drop(100)"} {
		_, err := app.Exec(t.Context(), statement)
		require.True(t, isRefused(err), "%s: %v", statement, err)
		_, err = app.Exec(postgres.AsSystem(t.Context()), statement)
		require.NoError(t, err, statement)
	}
}

// The user of a managed database is no superuser: it may lack the right to make
// roles, is bound by the policies of its own tables, and sees all tenants in the
// views for operators.
func TestUpAsAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	admin := pgtest.OpenPool(t, pgtest.EmptyURL(t))
	user := "owner_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	var database string
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT current_database()").Scan(&database))
	_, err := admin.Exec(t.Context(), "CREATE ROLE "+user+" LOGIN PASSWORD 'secret'; ALTER SCHEMA public OWNER TO "+user+"; GRANT CREATE ON DATABASE "+database+" TO "+user)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+user+" CASCADE; DROP ROLE "+user)
		require.NoError(t, err)
	})
	config := admin.Config()
	config.ConnConfig.User, config.ConnConfig.Password = user, "secret"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)

	err = migrations.Up(t.Context(), pool)
	require.ErrorIs(t, err, migrations.ErrRoles)
	require.ErrorContains(t, err, "GRANT tranche_app, tranche_system TO "+user)
	_, err = admin.Exec(t.Context(), "GRANT tranche_app, tranche_system TO "+user)
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), pool))

	seedOps(t, pool)
	var seen int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM ops.failures").Scan(&seen))
	require.Equal(t, 1, seen)
	_, err = pool.Exec(t.Context(), "UPDATE executions SET status = 'completed', batch_id = (SELECT id FROM execution_batches)")
	require.NoError(t, err)
	const thisMonthToo = "SELECT count(*) FROM execution_partitions_drop(-1)"
	for status, dropped := range map[string]int{"processing": 0, "complete": 1} {
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "UPDATE execution_batches SET status = $1", status)
		require.NoError(t, err)
		require.NoError(t, tx.QueryRow(t.Context(), thisMonthToo).Scan(&seen))
		require.Equal(t, dropped, seen, status)
		require.NoError(t, tx.Rollback(t.Context()))
	}
	_, err = pool.Exec(t.Context(), "SET row_security = off; SELECT FROM secrets")
	require.True(t, isRefused(err), "the owner is bound too: %v", err)
}
