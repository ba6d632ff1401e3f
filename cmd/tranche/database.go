package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/postgres"
	"tranche/internal/postgres/embedded"
	"tranche/migrations"
)

const (
	// commandConns is how many connections a command that is not a service opens.
	commandConns = 2
	// startingTimeMax is how long a service waits for a server that starts.
	startingTimeMax  = time.Minute
	startingInterval = 500 * time.Millisecond // between two looks at it
)

// databaseFlags say which database a command works with.
type databaseFlags struct {
	DatabaseURL     string `name:"database-url" env:"DATABASE_URL" group:"Database" placeholder:"URL" help:"PostgreSQL to work with. Without it: a server of the program's own in the data directory."`
	DatabaseURLFile string `name:"database-url-file" env:"DATABASE_URL_FILE" group:"Database" placeholder:"FILE" help:"File that holds the database URL."`
	DataDir         string `name:"data-dir" env:"TRANCHE_DATA_DIR" group:"Database" default:"${data_dir}" placeholder:"DIR" help:"Data directory of the own server (${default}). A command uses the server that runs there, or runs one while it works."`
	PGBin           string `name:"pg-bin" env:"TRANCHE_PG_BIN" group:"Database" placeholder:"DIR" help:"Where initdb and postgres are, for the own server. Without it they are looked for, then fetched."`
	PGDownload      string `name:"pg-download" env:"TRANCHE_PG_DOWNLOAD" group:"Database" enum:"on,off" default:"on" help:"Whether PostgreSQL may be fetched where none is installed: on or off."`
}

// database is an open database and, where it is the program's own, its server.
type database struct {
	url     string
	dataDir string // of the own server; empty otherwise
	server  *embedded.Server
}

// open finds the database: the one that is named, or the own server, which is
// started unless another process runs it.
func (f *databaseFlags) open(ctx context.Context, out *console, log *slog.Logger) (*database, error) {
	url, err := valueOrFile(f.DatabaseURL, f.DatabaseURLFile, "DATABASE_URL")
	if err != nil {
		return nil, err
	}
	if url != "" {
		return &database{url: url}, nil
	}
	server, err := embedded.Open(ctx, embedded.Options{
		Dir: f.DataDir, BinDir: f.PGBin, NoDownload: f.PGDownload == "off", Notices: out.Err, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("start a PostgreSQL server in %s (or set DATABASE_URL to use yours): %w", f.DataDir, err)
	}
	return &database{url: server.URL(), dataDir: f.DataDir, server: server}, nil
}

// close ends the use of the database.
func (d *database) close() error {
	if d.server == nil {
		return nil
	}
	return d.server.Close()
}

// pool returns the few connections that a short command needs. The operator,
// whose commands they are, serves all tenants.
func (d *database) pool(ctx context.Context) (*pgxpool.Pool, error) {
	return postgres.NewPool(ctx, d.url, postgres.PoolOptions{Name: "tranche command", Conns: commandConns, Unscoped: postgres.SeesAll})
}

// prepare migrates the own server's database and checks that anybody else's
// has this program's schema: that one is migrated by `tranche migrate` alone.
func (d *database) prepare(ctx context.Context, pool *pgxpool.Pool) error {
	if d.server != nil {
		return migrations.Up(ctx, pool)
	}
	return migrations.Behind(ctx, pool)
}

// prepareOnceStarted prepares the database as soon as its server takes connections,
// for which it waits for a minute at most, as while the server recovers from a crash:
// whoever keeps processes running gives up one that ends again and again.
func (d *database) prepareOnceStarted(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	waited := time.After(startingTimeMax)
	for isFirst := true; ; isFirst = false {
		err := d.prepare(ctx, pool)
		if !postgres.IsStarting(err) {
			return err
		}
		if isFirst {
			log.WarnContext(ctx, "waiting for the database", "seconds", startingTimeMax.Seconds(), "error", err)
		}
		select {
		case <-time.After(startingInterval):
		case <-waited:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// withDatabase opens the database and a pool, which is not prepared, calls work
// with them, and closes both.
func (f *databaseFlags) withDatabase(ctx context.Context, out *console, log *slog.Logger, work func(*database, *pgxpool.Pool) error) (err error) {
	db, err := f.open(ctx, out, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	pool, err := db.pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	return work(db, pool)
}

// withPool calls work with a pool of the database that is prepared.
func (f *databaseFlags) withPool(ctx context.Context, out *console, log *slog.Logger, work func(*pgxpool.Pool) error) error {
	return f.withDatabase(ctx, out, log, func(db *database, pool *pgxpool.Pool) error {
		if err := db.prepare(ctx, pool); err != nil {
			return err
		}
		return work(pool)
	})
}

// valueOrFile returns a value that is given directly or in a file; name is what to
// call it in errors. Both together are an error, as is an empty file.
func valueOrFile(value, file, name string) (string, error) {
	if file == "" {
		return value, nil
	}
	if value != "" {
		return "", fmt.Errorf("both %s and %s_FILE are set: leave one out", name, name)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s_FILE: %w", name, err)
	}
	if value = strings.TrimSpace(string(text)); value == "" {
		return "", fmt.Errorf("%s_FILE: %s is empty", name, file)
	}
	return value, nil
}
