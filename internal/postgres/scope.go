package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Roles of statements (docs/decisions/tenant-isolation.md). Neither role owns a table, so
// neither can bypass row-level security.
const (
	// RoleApp sees the rows of the tenant that the session names. Without a tenant it sees
	// no rows of tenants.
	RoleApp = "tranche_app"
	// RoleSystem sees the rows of all tenants.
	RoleSystem = "tranche_system"
)

// tenantSetting is the session parameter with the tenant of RoleApp.
const tenantSetting = "tranche.tenant_id"

// Unscoped defines which rows a statement sees if its context has no scope.
type Unscoped int

// Values of Unscoped.
const (
	SeesNothing Unscoped = iota // no rows of tenants
	SeesAll                     // the rows of all tenants, as with AsSystem
	SeesAsUser                  // the rows that the user of the connection string sees; for migrations and tests
)

// scope defines which rows the statements of a connection see.
type scope struct {
	role   string    // empty for the user of the connection string
	tenant uuid.UUID // uuid.Nil for no tenant
}

func (u Unscoped) scope() scope {
	switch u {
	case SeesAll:
		return scope{role: RoleSystem}
	case SeesAsUser:
		return scope{}
	default:
		return scope{role: RoleApp}
	}
}

type scopeKey struct{}

// WithTenant returns a context whose statements see only the rows of one tenant, whatever the
// query is. The tenant comes from a token, a signature or the arguments of a job.
func WithTenant(ctx context.Context, tenantID uuid.UUID) context.Context {
	return context.WithValue(ctx, scopeKey{}, scope{role: RoleApp, tenant: tenantID})
}

// AsSystem returns a context whose statements see the rows of all tenants. It is for work that
// serves all tenants or does not know its tenant yet.
func AsSystem(ctx context.Context) context.Context {
	return context.WithValue(ctx, scopeKey{}, scope{role: RoleSystem})
}

// session is the state of a pooled connection.
type session struct {
	began    time.Time
	unscoped scope // of statements whose context has no scope
	current  scope // of statements outside of transactions
}

const sessionKey = "tranche session" // in a connection's custom data

// sessionOf returns nil for a connection that NewPool did not configure.
func sessionOf(conn *pgx.Conn) *session {
	s, _ := conn.PgConn().CustomData()[sessionKey].(*session)
	return s
}

// wanted returns the scope of statements with this context.
func (s *session) wanted(ctx context.Context) scope {
	if named, ok := ctx.Value(scopeKey{}).(scope); ok {
		return named
	}
	return s.unscoped
}

type beginningKey struct{}

// beginning marks the acquisition of a connection for a transaction. Its BEGIN sets the scope.
func beginning(ctx context.Context) context.Context {
	return context.WithValue(ctx, beginningKey{}, true)
}

// prepareConn sets the scope of an acquired connection. It costs a round trip if the scope
// changes.
func prepareConn(ctx context.Context, conn *pgx.Conn) (bool, error) {
	s := sessionOf(conn)
	if isReadOnly(conn) && time.Since(s.began) > connReadOnlyMax {
		return false, nil // the pool opens another connection
	}
	wanted := s.wanted(ctx)
	if s.current == wanted || ctx.Value(beginningKey{}) != nil {
		return true, nil
	}
	if _, err := conn.Exec(ctx, s.current.change("SESSION", wanted)); err != nil {
		return false, err
	}
	s.current = wanted
	return true, nil
}

// isReadOnly reports whether a connection cannot write, because it leads to a standby or
// because the database or the user was read-only when it began. The connection stays read-only
// when the database is writable again. The server reports both without a round trip.
func isReadOnly(conn *pgx.Conn) bool {
	server := conn.PgConn()
	return server.ParameterStatus("default_transaction_read_only") == "on" || server.ParameterStatus("in_hot_standby") == "on"
}

// beginQuery returns the BEGIN of a transaction with this context. Its settings end with the
// transaction.
func (s *session) beginQuery(ctx context.Context) string {
	return "BEGIN;" + s.current.change("LOCAL", s.wanted(ctx))
}

// change returns the SQL that changes the scope to another one.
func (s scope) change(lifetime string, to scope) (sql string) {
	if s.role != to.role {
		role := to.role
		if role == "" {
			role = "NONE"
		}
		sql += "SET " + lifetime + " ROLE " + role + ";"
	}
	if s.tenant != to.tenant {
		tenant := ""
		if to.tenant != uuid.Nil {
			tenant = to.tenant.String()
		}
		sql += "SET " + lifetime + " " + tenantSetting + " = '" + tenant + "';"
	}
	return sql
}
