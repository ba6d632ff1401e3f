// Package migrations migrates a database to the schema of this program. It applies River's
// migrations to the schema river, and then the SQL files of this directory with goose. It
// must not know the meaning of the tables.
package migrations

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverSchema is the schema of River's tables.
const riverSchema = "river"

const (
	lockKey          = 0x7472616e636865 // "tranche"; the advisory lock of the migrating process
	lockPollInterval = 100 * time.Millisecond
	poolConnsMax     = 4
	attemptsMax      = 20 // for a migration that deadlocks; each takes a second
)

//go:embed *.sql
var files embed.FS

// Errors of Behind and Up.
var (
	// ErrBehind says that migrations are missing.
	ErrBehind = errors.New("the database's schema is behind")
	// ErrAhead says that a newer program has migrated the database.
	ErrAhead = errors.New("the database's schema is ahead")
	// ErrLZ4 says that another server created the database: this one can neither read nor
	// write its compressed values.
	ErrLZ4 = errors.New("the database's files are compressed with LZ4, which its server was built without")
)

// riverTuning drops indexes that slow inserts and that no query of River uses for fetching,
// completing, scheduling, rescuing and cleaning. It also makes autovacuum clean the
// busiest table before dead rows slow its fetches. It is repeatable.
const riverTuning = `
DROP INDEX IF EXISTS river.river_job_args_index, river.river_job_metadata_index, river.river_job_kind;
ALTER TABLE river.river_job SET (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_scale_factor = 0.01,
    autovacuum_analyze_scale_factor = 0.01,
    autovacuum_vacuum_cost_delay = 0
);`

// Up migrates the database of the pool to this program's schema. Several processes may call
// it concurrently: one migrates, and the others wait and find nothing to do. It returns
// ErrAhead for a database of a newer program.
func Up(ctx context.Context, pool *pgxpool.Pool) error {
	own, err := ownPool(ctx, pool)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	defer own.Close()
	// The lock belongs to the session of this connection and ends with it.
	conn, err := pgx.ConnectConfig(ctx, own.Config().ConnConfig)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := lock(ctx, conn); err != nil {
		return fmt.Errorf("migrations: wait for another migrating process: %w", err)
	}
	behind := Behind(ctx, own)
	if behind != nil && !errors.Is(behind, ErrBehind) {
		return behind
	}
	// Roles belong to the server, not to the database. A database that was restored on
	// another server can be up to date and lack them.
	if err := rolesUp(ctx, conn); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if behind != nil {
		if err := schemaUp(ctx, own); err != nil {
			return err
		}
	}
	if _, err := own.Exec(ctx, rolePrivileges); err != nil {
		return fmt.Errorf("grant the roles of the application their privileges: %w", err)
	}
	return nil
}

func schemaUp(ctx context.Context, pool *pgxpool.Pool) error {
	if err := riverUp(ctx, pool); err != nil {
		return fmt.Errorf("migrations of River: %w", err)
	}
	provider, err := newProvider(pool)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	defer func() { _ = provider.Close() }()
	for attempt := 1; ; attempt++ {
		_, err := provider.Up(ctx)
		if err == nil {
			return nil
		}
		// Older processes that still serve can lock tables in another order. A migration
		// that was rolled back because of a deadlock starts again.
		refused := (*pgconn.PgError)(nil)
		if attempt == attemptsMax || !errors.As(err, &refused) || refused.Code != "40P01" {
			return fmt.Errorf("migrations: %w", err)
		}
	}
}

// ownPool returns a pool like the given one, but with the user of its connection string
// and without time limits, because a migration may rewrite a table.
func ownPool(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Pool, error) {
	config := pool.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = poolConnsMax, 0, 0
	config.PrepareConn = nil
	for _, parameter := range []string{"role", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		delete(config.ConnConfig.RuntimeParams, parameter)
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// lock polls for the lock. A waiting statement would have a snapshot, and CREATE INDEX
// CONCURRENTLY in a migration would wait for it.
func lock(ctx context.Context, conn *pgx.Conn) error {
	for {
		var locked bool
		if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(lockKey)).Scan(&locked); err != nil {
			return err
		}
		if locked {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPollInterval):
		}
	}
}

func riverUp(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+riverSchema); err != nil {
		return err
	}
	migrator, err := newMigrator(pool)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, riverTuning)
	return err
}

func newMigrator(pool *pgxpool.Pool) (*rivermigrate.Migrator[pgx.Tx], error) {
	return rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{
		Schema: riverSchema, Logger: slog.New(slog.DiscardHandler),
	})
}

// newProvider returns a provider that applies all missing migrations in any order.
// Migrations that were developed concurrently can reach a database out of order.
func newProvider(pool *pgxpool.Pool) (*goose.Provider, error) {
	return goose.NewProvider(goose.DialectPostgres, stdlib.OpenDBFromPool(pool), files,
		goose.WithDisableGlobalRegistry(true), goose.WithAllowOutofOrder(true))
}

// Behind compares the schema of the database with that of this program. It returns nil if
// they are equal, and otherwise ErrBehind or ErrAhead with both versions and the action to
// take. A process gets ErrAhead during the rollout of a newer version. ErrLZ4 means that
// the schema is right, but this server cannot read the database.
func Behind(ctx context.Context, pool *pgxpool.Pool) error {
	wantGoose, wantRiver, err := Versions()
	if err != nil {
		return err
	}
	haveGoose, err := version(ctx, pool, "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied")
	if err != nil {
		return err
	}
	skipped, err := missing(ctx, pool)
	if err != nil {
		return err
	}
	haveRiver, err := version(ctx, pool, "SELECT coalesce(max(version), 0) FROM river.river_migration WHERE line = 'main'")
	if err != nil {
		return err
	}
	versions := fmt.Sprintf("schema %d of %d, River %d of %d", haveGoose, wantGoose, haveRiver, wantRiver)
	switch {
	case haveGoose > wantGoose || haveRiver > wantRiver:
		return fmt.Errorf("%w of this program (%s): run the newer tranche that migrated it", ErrAhead, versions)
	case haveGoose < wantGoose || haveRiver < wantRiver:
		return fmt.Errorf("%w (%s): run `tranche migrate`", ErrBehind, versions)
	case skipped > 0: // it was developed at the same time as a later one
		return fmt.Errorf("%w (%s, %d skipped): run `tranche migrate`", ErrBehind, versions, skipped)
	default:
		return readable(ctx, pool)
	}
}

// readable returns ErrLZ4 if a server without LZ4 runs the data directory of a server with
// LZ4. Such a server starts, but fails when it reads a compressed value.
func readable(ctx context.Context, pool *pgxpool.Pool) error {
	var unreadable bool
	err := pool.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM pg_attribute
				WHERE attrelid IN ('attachment_chunks'::regclass, 'batch_chunks'::regclass) AND attcompression = 'l')
			AND NOT (SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression')`).Scan(&unreadable)
	if err != nil {
		return fmt.Errorf("read the compression of the database: %w", err)
	}
	if unreadable {
		return fmt.Errorf("%w: run a PostgreSQL that has it (Debian's, Ubuntu's and those of PGDG do)", ErrLZ4)
	}
	return nil
}

// missing counts the own migrations that the database lacks. It returns 0 for an empty
// database.
func missing(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	own, err := numbers()
	if err != nil {
		return 0, err
	}
	return version(ctx, pool, `SELECT count(*) FROM unnest($1::bigint[]) AS number
		WHERE NOT EXISTS (SELECT FROM goose_db_version WHERE version_id = number AND is_applied)`, own)
}

// version reads a migration table. It returns 0 if there is none yet.
func version(ctx context.Context, pool *pgxpool.Pool, query string, args ...any) (int64, error) {
	var at int64
	err := pool.QueryRow(ctx, query, args...).Scan(&at)
	if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) {
		switch refused.Code {
		case "42P01", "3F000": // no such table, schema
			return 0, nil
		case "22023", "42501": // the role does not exist, may not be set, or may not read
			return 0, fmt.Errorf("%w (%s): run `tranche migrate`", ErrBehind, refused.Message)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("read the schema's version: %w", err)
	}
	return at, nil
}

// Versions returns the newest own migration of this program and that of River.
func Versions() (own, river int64, err error) {
	all, err := numbers()
	if err != nil {
		return 0, 0, err
	}
	own = slices.Max(all)
	migrator, err := newMigrator(nil)
	if err != nil {
		return 0, 0, fmt.Errorf("migrations of River: %w", err)
	}
	for _, migration := range migrator.AllVersions() {
		river = max(river, int64(migration.Version))
	}
	return own, river, nil
}

// numbers returns the numbers of the own migrations.
func numbers() ([]int64, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	all := make([]int64, len(names))
	for i, name := range names {
		if all[i], err = goose.NumericComponent(name); err != nil {
			return nil, fmt.Errorf("migrations: %w", err)
		}
	}
	return all, nil
}

// Fingerprint identifies the state of a migrated database. The names of the template
// databases of tests contain it.
func Fingerprint() (string, error) {
	_, river, err := Versions()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "river %d\n%s\n%s\n", river, riverTuning, rolePrivileges)
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return "", fmt.Errorf("migrations: %w", err)
	}
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("migrations: %w", err)
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:6]), nil
}
