package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/postgres/embedded"
	"tranche/migrations"
)

// clientsMany is the number of connections of a full load, to the database or the
// service.
const clientsMany = 32

// database is the measured PostgreSQL server. It has a database for the service and one
// with the same schema for the limits.
type database struct {
	server   *embedded.Server
	dir      string // parent of the server's directory
	url      string
	own      *pgxpool.Pool // database of the service
	limit    *pgxpool.Pool // database of the limits
	settings map[string]string
	version  string
}

func openDatabase(ctx context.Context, dir string, config Config) (_ *database, err error) {
	d := &database{dir: dir}
	d.server, err = embedded.Open(ctx, embedded.Options{
		Dir: filepath.Join(dir, "database"), BinDir: config.PGBin, Notices: config.Progress, Log: config.Log,
		Settings: map[string]string{"min_wal_size": fmt.Sprintf("%dMB", logKept*segmentBytes>>20)},
	})
	if err != nil {
		return nil, fmt.Errorf("start a PostgreSQL server: %w", err)
	}
	defer func() {
		if err != nil {
			_ = d.close()
		}
	}()
	d.url = d.server.URL()
	if d.own, err = openPool(ctx, d.url, ""); err != nil {
		return nil, err
	}
	if err := d.checkDurability(ctx); err != nil {
		return nil, err
	}
	if _, err := d.own.Exec(ctx, "CREATE DATABASE bench_limit"); err != nil {
		return nil, err
	}
	if d.limit, err = openPool(ctx, d.url, "bench_limit"); err != nil {
		return nil, err
	}
	for _, pool := range []*pgxpool.Pool{d.own, d.limit} {
		if err := migrations.Up(ctx, pool); err != nil {
			return nil, err
		}
	}
	if err := d.fillLog(ctx); err != nil {
		return nil, fmt.Errorf("create WAL segments: %w", err)
	}
	if err := d.fillBuffers(ctx); err != nil {
		return nil, fmt.Errorf("fill the shared buffers: %w", err)
	}
	return d, d.makeLimitTables(ctx)
}

const (
	segmentBytes = 16 << 20 // of WAL, PostgreSQL's default
	logKept      = 256      // segments; the size of max_wal_size
)

// fillLog creates WAL segments, which the checkpoint keeps for reuse. A server that has run
// for a while has them; on a new server, commits wait for each new segment.
func (d *database) fillLog(ctx context.Context) error {
	for range logKept {
		if _, err := d.own.Exec(ctx, "SELECT pg_logical_emit_message(false, 'bench', ''), pg_switch_wal()"); err != nil {
			return err
		}
	}
	_, err := d.own.Exec(ctx, "CHECKPOINT")
	return err
}

// fillBuffers writes to each shared buffer once, with a table of as many pages. On a new
// server, the kernel allocates and clears memory at the first write to each buffer.
func (d *database) fillBuffers(ctx context.Context) error {
	_, err := d.limit.Exec(ctx, `
		CREATE UNLOGGED TABLE bench_pages (bytes text);
		ALTER TABLE bench_pages ALTER bytes SET STORAGE PLAIN;
		INSERT INTO bench_pages SELECT repeat('x', 8000) FROM pg_settings, generate_series(1, setting::bigint) WHERE name = 'shared_buffers';
		DROP TABLE bench_pages`)
	return err
}

// openPool opens a pool to the database of the url, or to database name if it is not
// empty.
func openPool(ctx context.Context, url, name string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = clientsMany + 8
	if name != "" {
		config.ConnConfig.Database = name
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// checkDurability checks that the server does not lose commits. Otherwise the figures
// would be useless.
func (d *database) checkDurability(ctx context.Context) error {
	rows, err := d.own.Query(ctx, `SELECT name, current_setting(name) FROM pg_settings
		WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'min_wal_size', 'max_wal_size', 'checkpoint_timeout', 'wal_sync_method')`)
	if err != nil {
		return err
	}
	d.settings = map[string]string{}
	var name, value string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		d.settings[name] = value
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if d.settings[name] != "on" {
			return fmt.Errorf("the server has %s=%s: the benchmark needs it on", name, d.settings[name])
		}
	}
	return d.own.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&d.version)
}

// wal returns the number of bytes of WAL that the server has written.
func (d *database) wal(ctx context.Context) (bytes float64, err error) {
	err = d.own.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").Scan(&bytes)
	return bytes, err
}

func (d *database) close() error {
	if d.own != nil {
		d.own.Close()
	}
	if d.limit != nil {
		d.limit.Close()
	}
	return d.server.Close()
}
