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

// clientsMany is how many connections a full load has, to the database or the
// service; a few more than that are open.
const clientsMany = 32

// database is the server under measurement, with one database for the service
// and one, of the same schema, for what it is compared with.
type database struct {
	server   *embedded.Server
	dir      string // that the server's directory is in
	url      string
	own      *pgxpool.Pool // the service's database
	limit    *pgxpool.Pool // the other
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
		return nil, fmt.Errorf("fill the server's log: %w", err)
	}
	if err := d.fillBuffers(ctx); err != nil {
		return nil, fmt.Errorf("fill the server's buffers: %w", err)
	}
	return d, d.makeLimitTables(ctx)
}

const (
	segmentBytes = 16 << 20 // of WAL, PostgreSQL's default
	logKept      = 256      // segments, as many as max_wal_size has
)

// fillLog has the server make the segments of its WAL beforehand: the checkpoint
// keeps those that were filled for use again. A server that has run for a while
// has them, and on a new one every commit waits whenever one is made.
func (d *database) fillLog(ctx context.Context) error {
	for range logKept {
		if _, err := d.own.Exec(ctx, "SELECT pg_logical_emit_message(false, 'bench', ''), pg_switch_wal()"); err != nil {
			return err
		}
	}
	_, err := d.own.Exec(ctx, "CHECKPOINT")
	return err
}

// fillBuffers has the server write to each of its shared buffers once, with a table
// of as many pages. A server that has run for a while has; on a new one the kernel
// finds and clears memory whenever a buffer is written to for the first time.
func (d *database) fillBuffers(ctx context.Context) error {
	_, err := d.limit.Exec(ctx, `
		CREATE UNLOGGED TABLE bench_pages (bytes text);
		ALTER TABLE bench_pages ALTER bytes SET STORAGE PLAIN;
		INSERT INTO bench_pages SELECT repeat('x', 8000) FROM pg_settings, generate_series(1, setting::bigint) WHERE name = 'shared_buffers';
		DROP TABLE bench_pages`)
	return err
}

// openPool connects to another database of the server than the url names,
// unless name is empty.
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

// checkDurability asks the server what it does; a figure of one that may lose
// what it has committed would be worth nothing.
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
			return fmt.Errorf("the server has %s %q: nothing is measured unless it is on", name, d.settings[name])
		}
	}
	return d.own.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&d.version)
}

// wal is how many bytes of WAL the server has written.
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
