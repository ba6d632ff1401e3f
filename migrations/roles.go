package migrations

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"tranche/internal/postgres"
)

// roleAttemptsMax is how often creating a role is tried again. Roles belong to the whole
// server, so processes that migrate other databases create them concurrently.
const roleAttemptsMax = 10

// ErrRoles says that the migrating user may not create the application's roles.
var ErrRoles = errors.New("the roles of the application are missing")

// rolesUp creates the roles of the application and makes the migrating user a member of
// both, because its views show all tenants.
func rolesUp(ctx context.Context, conn *pgx.Conn) error {
	for attempt := 1; ; attempt++ {
		missing, err := rolesMissing(ctx, conn)
		if err != nil || len(missing) == 0 {
			return err
		}
		_, err = conn.Exec(ctx, missing[0])
		var refused *pgconn.PgError
		switch {
		case err == nil:
			attempt = 0
		case !errors.As(err, &refused) || attempt == roleAttemptsMax:
			return err
		case refused.Code == "42501": // insufficient_privilege
			return fmt.Errorf("%w: have a superuser run `%s` and migrate again", ErrRoles, strings.Join(missing, "; "))
		}
	}
}

// rolesMissing returns the SQL that creates the missing roles and memberships.
func rolesMissing(ctx context.Context, conn *pgx.Conn) (statements []string, err error) {
	rows, err := conn.Query(ctx, `
		WITH wanted AS (SELECT unnest($1::text[]) AS name)
		SELECT format('CREATE ROLE %I NOLOGIN', w.name) FROM wanted w
		WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = w.name)
		UNION ALL
		SELECT format('GRANT %s TO %I', string_agg(quote_ident(w.name), ', ' ORDER BY w.name), current_user)
		FROM wanted w LEFT JOIN pg_roles r ON r.rolname = w.name
		WHERE r.oid IS NULL AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
		   OR NOT pg_has_role(r.oid, 'USAGE')
		   OR NOT pg_has_role(r.oid, CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END)
		HAVING count(*) > 0`, []string{postgres.RoleApp, postgres.RoleSystem})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// rolePrivileges grants the roles access to all tables, but no ownership. It runs after
// every migration and is repeatable. In partitions with policies of their own the roles
// can read and change rows, but not insert or delete them.
const rolePrivileges = `
GRANT USAGE ON SCHEMA public, river TO tranche_app, tranche_system;
GRANT USAGE ON SCHEMA ops TO tranche_system;
GRANT SELECT ON ALL TABLES IN SCHEMA ops TO tranche_system;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA river TO tranche_app, tranche_system;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA river TO tranche_app, tranche_system;
DO $$
DECLARE
    of_tables record;
BEGIN
    FOR of_tables IN
        SELECT c.oid::regclass AS name,
            CASE WHEN c.relispartition THEN 'SELECT, UPDATE'
                WHEN c.relname = 'goose_db_version' THEN 'SELECT'
                WHEN c.relname IN ('audit_events', 'evidence_records') THEN 'SELECT, INSERT'
                ELSE 'SELECT, INSERT, UPDATE, DELETE' END AS privileges,
            CASE WHEN c.relname = 'signing_keys' THEN 'tranche_system' ELSE 'tranche_app, tranche_system' END AS roles
        FROM pg_class c
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND (NOT c.relispartition OR c.relrowsecurity)
    LOOP
        EXECUTE format('GRANT %s ON %s TO %s', of_tables.privileges, of_tables.name, of_tables.roles);
    END LOOP;
END $$;`
