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
	// commandConns is the pool size of commands other than serve.
	commandConns = 2
	// startingTimeMax limits how long serve waits for a starting PostgreSQL server.
	startingTimeMax  = time.Minute
	startingInterval = 500 * time.Millisecond // between two attempts
)

// databaseFlags select the database of a command.
type databaseFlags struct {
	DatabaseURL     string `name:"database-url" env:"DATABASE_URL" group:"Database" placeholder:"URL" help:"PostgreSQL database to use. By default, the program runs its own server in the data directory."`
	DatabaseURLFile string `name:"database-url-file" env:"DATABASE_URL_FILE" group:"Database" placeholder:"FILE" help:"File with the database URL."`
	DataDir         string `name:"data-dir" env:"TRANCHE_DATA_DIR" group:"Database" default:"${data_dir}" placeholder:"DIR" help:"Data directory of the program's own server (${default}). A command uses the running server of this directory or starts it for its own duration."`
	PGBin           string `name:"pg-bin" env:"TRANCHE_PG_BIN" group:"Database" placeholder:"DIR" help:"Directory of initdb and postgres. By default they are searched for, then downloaded."`
	PGDownload      string `name:"pg-download" env:"TRANCHE_PG_DOWNLOAD" group:"Database" enum:"on,off" default:"on" help:"Whether PostgreSQL may be downloaded if it is not installed: on or off."`
}

// database is an open database.
type database struct {
	url     string
	dataDir string           // of the program's own server; empty for another database
	server  *embedded.Server // nil for another database
}

// open returns the configured database. If none is configured, it starts the program's
// own server, unless another process runs it already.
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
		return nil, fmt.Errorf("start a PostgreSQL server in %s (set DATABASE_URL to use an existing server): %w", f.DataDir, err)
	}
	return &database{url: server.URL(), dataDir: f.DataDir, server: server}, nil
}

// close stops the program's own server, if this process started it.
func (d *database) close() error {
	if d.server == nil {
		return nil
	}
	return d.server.Close()
}

// pool returns a small pool. Commands are the operator's, so it sees all tenants.
func (d *database) pool(ctx context.Context) (*pgxpool.Pool, error) {
	return postgres.NewPool(ctx, d.url, postgres.PoolOptions{Name: "tranche command", Conns: commandConns, Unscoped: postgres.SeesAll})
}

// prepare migrates the database of the program's own server. For other databases it
// only checks the schema, because the operator migrates them with `tranche migrate`.
func (d *database) prepare(ctx context.Context, pool *pgxpool.Pool) error {
	if d.server != nil {
		return migrations.Up(ctx, pool)
	}
	return migrations.Behind(ctx, pool)
}

// prepareOnceStarted waits up to a minute until the server accepts connections, for
// example after a crash, and prepares the database. Supervisors stop restarting a
// process that exits repeatedly.
func (d *database) prepareOnceStarted(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	waited := time.After(startingTimeMax)
	for isFirst := true; ; isFirst = false {
		err := d.prepare(ctx, pool)
		if !postgres.IsStarting(err) {
			return err
		}
		if isFirst {
			log.WarnContext(ctx, "waiting for the database", "secondsMax", startingTimeMax.Seconds(), "error", err)
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

// withDatabase calls work with the database, which is not prepared, and a pool.
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

// withPool prepares the database and calls work with a pool.
func (f *databaseFlags) withPool(ctx context.Context, out *console, log *slog.Logger, work func(*pgxpool.Pool) error) error {
	return f.withDatabase(ctx, out, log, func(db *database, pool *pgxpool.Pool) error {
		if err := db.prepare(ctx, pool); err != nil {
			return err
		}
		return work(pool)
	})
}

// valueOrFile returns value, or the text in file if that is set. It returns an error
// with the variable's name if both are set or the file is empty.
func valueOrFile(value, file, name string) (string, error) {
	if file == "" {
		return value, nil
	}
	if value != "" {
		return "", fmt.Errorf("both %s and %s_FILE are set: unset one of them", name, name)
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
