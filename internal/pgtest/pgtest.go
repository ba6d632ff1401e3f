// Package pgtest provides a real PostgreSQL for tests. A test gets its own database, cloned
// from a migrated template in a tenth of a second, or a transaction that is rolled back.
// The package also has factories for rows, and helpers that change, count and await them.
// It must not know HTTP.
//
// All test binaries of a `go test ./...` share one server. The first binary starts it, and
// it ends some minutes after the last binary. TEST_DATABASE_URL names another server; its
// user must be allowed to create databases.
package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/postgres"
	"tranche/migrations"
)

const poolConns = 10

// serviceUser is the database user of services under test.
const serviceUser = "tranche_test_service"

// makeServiceUser runs after the migrations, which create the roles. Users belong to the
// whole server, so several processes may create the user concurrently.
const makeServiceUser = `DO $$ BEGIN
	PERFORM pg_advisory_xact_lock(hashtext('` + serviceUser + `'));
	IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '` + serviceUser + `') THEN
		CREATE ROLE ` + serviceUser + ` LOGIN PASSWORD '` + serviceUser + `';
		GRANT ` + postgres.RoleApp + `, ` + postgres.RoleSystem + ` TO ` + serviceUser + `;
	END IF;
END $$`

// URL returns the connection string of a new migrated database. It is dropped when the
// test ends.
func URL(tb testing.TB) string {
	tb.Helper()
	template, err := templateName()
	require.NoError(tb, err)
	return create(tb, "TEMPLATE "+template)
}

// EmptyURL returns the connection string of a new empty database. The options are those
// of CREATE DATABASE.
func EmptyURL(tb testing.TB, options ...string) string {
	tb.Helper()
	return create(tb, strings.Join(options, " "))
}

// ServiceURL returns the connection string of a user with the privileges of a service: it
// is a member of the application's roles and owns nothing.
func ServiceURL(tb testing.TB, url string) string {
	tb.Helper()
	return withUser(url, serviceUser)
}

// Pool returns a pool on a new migrated database. Use it if commits, concurrency or
// notifications matter.
func Pool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	return OpenPool(tb, URL(tb))
}

// OpenPool returns a pool on a database. It is closed when the test ends. Its user may do
// everything. If the context names a tenant or the system, the pool uses their role, as
// the service does.
func OpenPool(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	pool, err := postgres.NewPool(tb.Context(), url, postgres.PoolOptions{Name: tb.Name(), Conns: poolConns, Unscoped: postgres.SeesAsUser})
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	return pool
}

// Tx returns a transaction in a migrated database that tests share. It is rolled back
// when the test ends. Rows need unique keys, because parallel tests would wait for each
// other; the factories create such keys.
func Tx(tb testing.TB) pgx.Tx {
	tb.Helper()
	shared, err := sharedName()
	require.NoError(tb, err)
	admin, err := serverURL()
	require.NoError(tb, err)
	tx, err := OpenPool(tb, withDatabase(admin, shared)).Begin(tb.Context())
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// create creates a database and returns its connection string.
func create(tb testing.TB, how string) string {
	tb.Helper()
	admin, err := serverURL()
	require.NoError(tb, err)
	id := uuid.New()
	name := fmt.Sprintf("test_%x", id[:8])
	require.NoError(tb, administer(tb.Context(), admin, "CREATE DATABASE "+name+" "+how))
	tb.Cleanup(func() {
		require.NoError(tb, administer(context.Background(), admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"))
	})
	return withDatabase(admin, name)
}

func administer(ctx context.Context, admin, statement string) error {
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, statement)
	return err
}

// withDatabase replaces the database of a connection string.
func withDatabase(admin, name string) string {
	if parsed, err := url.Parse(admin); err == nil && strings.HasPrefix(parsed.Scheme, "postgres") {
		parsed.Path = "/" + name
		return parsed.String()
	}
	return admin + " dbname=" + name // the keyword form, in which the last one counts
}

// withUser replaces the user of a connection string. The password is the user's name.
func withUser(admin, name string) string {
	if parsed, err := url.Parse(admin); err == nil && strings.HasPrefix(parsed.Scheme, "postgres") {
		parsed.User = url.UserPassword(name, name)
		return parsed.String()
	}
	return admin + " user=" + name + " password=" + name
}

// templateName is the migrated database that is cloned. sharedName is the database of Tx.
var (
	templateName = sync.OnceValues(func() (string, error) { return ensure("template") })
	sharedName   = sync.OnceValues(func() (string, error) { return ensure("shared") })
)

// ensure returns the migrated database for a purpose and creates it if needed. It has its
// name only when it is complete. The name contains the month, because the migrations
// create partitions from the current month on.
func ensure(purpose string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeMax)
	defer cancel()
	admin, err := serverURL()
	if err != nil {
		return "", err
	}
	fingerprint, err := migrations.Fingerprint()
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("tranche_%s_%s_%s", purpose, time.Now().UTC().Format("200601"), fingerprint)
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }() // frees the lock
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtext($1))", name); err != nil {
		return "", err
	}
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists); err != nil || exists {
		return name, err
	}
	making := name + "_making"
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + making, "CREATE DATABASE " + making} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return "", err
		}
	}
	if err := migrate(ctx, withDatabase(admin, making)); err != nil {
		return "", err
	}
	if _, err := conn.Exec(ctx, makeServiceUser); err != nil {
		return "", err
	}
	_, err = conn.Exec(ctx, "ALTER DATABASE "+making+" RENAME TO "+name)
	return name, err
}

func migrate(ctx context.Context, url string) error {
	pool, err := postgres.NewPool(ctx, url, postgres.PoolOptions{Name: "pgtest", Conns: 2, Unscoped: postgres.SeesAsUser})
	if err != nil {
		return err
	}
	defer pool.Close()
	return migrations.Up(ctx, pool)
}
