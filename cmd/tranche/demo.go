package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"tranche/internal/demo"
	"tranche/internal/egress"
	"tranche/internal/logging"
	"tranche/internal/server"
)

// demoCommand runs the demo on a database of its own.
type demoCommand struct {
	Addr       string `name:"addr" env:"TRANCHE_DEMO_ADDR" default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"Address to listen on. Port 0 selects a free port (${default})."`
	Exit       bool   `name:"exit" env:"TRANCHE_DEMO_EXIT" help:"Exit when the batch is complete instead of serving on."`
	DataDir    string `name:"data-dir" env:"TRANCHE_DATA_DIR" default:"${demo_data_dir}" placeholder:"DIR" help:"Directory of the demo's database, log and results (${default})."`
	PGBin      string `name:"pg-bin" env:"TRANCHE_PG_BIN" placeholder:"DIR" help:"Directory of initdb and postgres. By default they are searched for, then downloaded."`
	PGDownload string `name:"pg-download" env:"TRANCHE_PG_DOWNLOAD" enum:"on,off" default:"on" help:"Whether PostgreSQL may be downloaded if it is not installed: on or off."`
}

// Help returns the long help of the command.
func (*demoCommand) Help() string {
	return "Starts its own PostgreSQL server, the service and a stand-in credit bureau. Publishes three sample workflows. " +
		"Runs one for a single applicant and one for a file of 2,000 applicants; pauses and resumes that batch. " +
		"Stops the bureau and uploads the failed items, corrected; restarts it and retries the rest. Prints commands to continue with. " +
		"If a run is interrupted, the next run completes its batch. The demo ignores DATABASE_URL and uses no database but its own."
}

// Run runs the demo. Without --exit it then serves until a signal.
func (c *demoCommand) Run(ctx context.Context, out *console) (err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once

	if err := os.MkdirAll(c.DataDir, 0o755); err != nil { // #nosec G301 -- PostgreSQL may run as another user
		return err
	}
	logFile, err := os.OpenFile(filepath.Join(c.DataDir, "demo.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, logFile.Close()) }()
	d, err := demo.Open(ctx, c.DataDir, out.Out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return unlessCancelled(ctx, c.serve(ctx, out, d, logging.New(logFile, slog.LevelInfo)))
}

// serve starts the service and runs the demo as its client.
func (c *demoCommand) serve(ctx context.Context, out *console, d *demo.Demo, log *slog.Logger) (err error) {
	exceptions, err := egress.ParseAllow(d.BureauAddress())
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Addr)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // closes it if the service did not
	serve := &serveCommand{
		Role: server.RoleAll, exceptions: exceptions,
		databaseFlags: databaseFlags{DataDir: c.DataDir, PGBin: c.PGBin, PGDownload: c.PGDownload},
		messageFlags:  messageFlags{MailDir: d.MailDir()},
	}
	db, err := serve.databaseFlags.open(ctx, out, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	process, err := serve.server(ctx, db, listener, nil, log)
	if err != nil {
		return err
	}

	serving, leave := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- process.Run(serving, listener, func() { close(ready) }) }()
	select {
	case <-ready:
		err = c.show(serving, d, db, localURL(listener))
	case err = <-ended:
		ended <- nil
	}
	leave()
	return errors.Join(err, <-ended)
}

// show runs the demo while the service runs.
func (c *demoCommand) show(ctx context.Context, d *demo.Demo, db *database, url string) error {
	pool, err := db.pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	service := demo.Service{URL: url, DatabaseURL: db.url, Pool: pool}
	credentials, err := d.Run(ctx, service)
	if err != nil || c.Exit {
		return err
	}
	d.PrintNext(service, credentials)
	<-ctx.Done()
	return nil
}

// demoDataDir returns a directory next to the data directory of `serve`, so that the
// two do not share a database.
func demoDataDir(dataDir string) string {
	if dataDir == "" {
		return ""
	}
	return dataDir + "-demo"
}
