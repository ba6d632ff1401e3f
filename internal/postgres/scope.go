package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// The roles under which statements run (docs/decisions/tenant-isolation.md).
// Neither owns a table, so neither can lift row-level security.
const (
	// RoleApp sees the rows of the tenant that the connection names, and without
	// one nobody's.
	RoleApp = "tranche_app"
	// RoleSystem sees the rows of all tenants.
	RoleSystem = "tranche_system"
)

// tenantSetting is the parameter that names the tenant of RoleApp.
const tenantSetting = "tranche.tenant_id"

// Unscoped says what statements see whose context names neither a tenant nor
// the system.
type Unscoped int

// The ways of pools.
const (
	SeesNothing Unscoped = iota // no row of any tenant
	SeesAll                     // the rows of all tenants, as by AsSystem
	SeesAsUser                  // what the user of the connection string sees; for migrations and tests
)

// scope is whose rows the statements of a connection see.
type scope struct {
	role   string    // empty: the user of the connection string
	tenant uuid.UUID // zero: nobody
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

// WithTenant returns a context whose statements see the rows of one tenant and
// no other's, however a query is written. It is called where a request or a job
// says whose it is, with the tenant that a token, a signature or the job's
// arguments name.
func WithTenant(ctx context.Context, tenantID uuid.UUID) context.Context {
	return context.WithValue(ctx, scopeKey{}, scope{role: RoleApp, tenant: tenantID})
}

// AsSystem returns a context whose statements see the rows of all tenants: for
// work that serves all of them, or that has yet to find out whose it is.
func AsSystem(ctx context.Context) context.Context {
	return context.WithValue(ctx, scopeKey{}, scope{role: RoleSystem})
}

// session is what is known of a connection of a pool.
type session struct {
	began    time.Time
	unscoped scope // of statements whose context names none
	current  scope // of statements outside of transactions, now
}

const sessionKey = "tranche session" // in a connection's custom data

// sessionOf returns nil for a connection that NewPool did not configure.
func sessionOf(conn *pgx.Conn) *session {
	s, _ := conn.PgConn().CustomData()[sessionKey].(*session)
	return s
}

// wanted is the scope of statements with this context.
func (s *session) wanted(ctx context.Context) scope {
	if named, ok := ctx.Value(scopeKey{}).(scope); ok {
		return named
	}
	return s.unscoped
}

type beginningKey struct{}

// beginning marks the acquisition of a connection for a transaction, whose BEGIN
// takes the scope along.
func beginning(ctx context.Context) context.Context {
	return context.WithValue(ctx, beginningKey{}, true)
}

// prepareConn gives a connection the scope of the context it is acquired with.
// It asks nothing of the server while a connection goes on serving the same
// tenant, and else costs a round trip.
func prepareConn(ctx context.Context, conn *pgx.Conn) (bool, error) {
	s := sessionOf(conn)
	if isReadOnly(conn) && time.Since(s.began) > connReadOnlyMax {
		return false, nil // another is made
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

// isReadOnly reports whether a connection cannot write, by what the server tells of it
// unasked: it leads to a standby, or began while its database or user was set to
// read only. It remains so when another server, or the same, can be written again.
func isReadOnly(conn *pgx.Conn) bool {
	server := conn.PgConn()
	return server.ParameterStatus("default_transaction_read_only") == "on" || server.ParameterStatus("in_hot_standby") == "on"
}

// beginQuery is the BEGIN of a transaction with this context. What it sets ends
// with the transaction.
func (s *session) beginQuery(ctx context.Context) string {
	return "BEGIN;" + s.current.change("LOCAL", s.wanted(ctx))
}

// change is the SQL that leads from one scope to another.
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
