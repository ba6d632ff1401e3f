package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5"

	"tranche/cmd/tranche/service"
	"tranche/internal/audit"
	"tranche/internal/bureau"
	"tranche/internal/egress"
	"tranche/internal/fault"
	"tranche/internal/identity"
	"tranche/internal/logging"
	"tranche/internal/postgres"
)

const (
	demoTenant = "demo"
	demoSeed   = 20261121 // of the stand-in bureau
)

// demoCommand shows the service at work on a machine where nothing is set up.
type demoCommand struct {
	Addr       string `name:"addr" env:"TRANCHE_DEMO_ADDR" default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"Address to listen on; port 0 takes a free one (${default})."`
	Exit       bool   `name:"exit" env:"TRANCHE_DEMO_EXIT" help:"Leave when the batch is finished instead of serving on."`
	DataDir    string `name:"data-dir" env:"TRANCHE_DATA_DIR" default:"${demo_data_dir}" placeholder:"DIR" help:"Where the demo keeps its database, its log and its results (${default})."`
	PGBin      string `name:"pg-bin" env:"TRANCHE_PG_BIN" placeholder:"DIR" help:"Where initdb and postgres are. Without it they are looked for, then fetched."`
	PGDownload string `name:"pg-download" env:"TRANCHE_PG_DOWNLOAD" enum:"on,off" default:"on" help:"Whether PostgreSQL may be fetched where none is installed: on or off."`
}

// Help is the long form of the command's help.
func (*demoCommand) Help() string {
	return "Starts a PostgreSQL server of its own, the service and a stand-in credit bureau; publishes three sample workflows, " +
		"runs one for one applicant and one for a file of 2,000, which is paused and resumed on its way; uploads what failed, corrected, while the bureau is down; " +
		"retries the rest; and says where to look next. A run that was interrupted " +
		"leaves a batch that completes by itself at the next one. DATABASE_URL is ignored: the demo touches no database but its own."
}

// Run shows everything, then serves until a signal unless --exit says to leave.
func (c *demoCommand) Run(ctx context.Context, out *console) (err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once

	show := newScreen(out.Out)
	if err := os.MkdirAll(c.DataDir, 0o755); err != nil { // #nosec G301 -- the server's own user must pass
		return err
	}
	logFile, err := os.OpenFile(filepath.Join(c.DataDir, "demo.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, logFile.Close()) }()
	state, err := loadDemoState(c.DataDir)
	if err != nil {
		return err
	}
	lender, err := c.openBureau(ctx, state)
	if err != nil {
		return fmt.Errorf("open the stand-in bureau: %w", err)
	}
	demo := &demoRun{command: c, console: out, log: logging.New(logFile, slog.LevelInfo), screen: show, state: state, bureau: lender}
	defer func() { err = errors.Join(err, demo.bureau.Close()) }()
	return ifNotStopped(ctx, demo.run(ctx))
}

// openBureau opens the bureau where published workflows expect it, if that
// port is still free, else anywhere.
func (c *demoCommand) openBureau(ctx context.Context, state *demoState) (*bureau.Server, error) {
	config := bureau.Realistic(demoSeed)
	if state.Bureau != "" {
		if server, err := bureau.Start(ctx, state.Bureau, config); err == nil {
			return server, nil
		}
	}
	return bureau.Start(ctx, "127.0.0.1:0", config)
}

// demoRun is one run of the demo with everything it has opened.
type demoRun struct {
	command *demoCommand
	console *console
	log     *slog.Logger
	screen  *screen
	state   *demoState
	bureau  *bureau.Server
}

// run opens the database, serves, and walks through it as a client meanwhile.
func (d *demoRun) run(ctx context.Context) (err error) {
	exceptions, err := egress.ParseAllow(d.bureau.Addr())
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", d.command.Addr)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // the service has closed it in most cases
	serve := &serveCommand{
		Role: service.RoleAll, exceptions: exceptions,
		databaseFlags: databaseFlags{DataDir: d.command.DataDir, PGBin: d.command.PGBin, PGDownload: d.command.PGDownload},
		messageFlags:  messageFlags{MailDir: d.mailbox()},
	}
	db, err := serve.databaseFlags.open(ctx, d.console, d.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	d.screen.step("PostgreSQL runs in %s", d.command.DataDir)
	process, err := serve.service(ctx, db, listener, nil, d.log)
	if err != nil {
		return err
	}
	d.state.Bureau = d.bureau.Addr()
	if err := d.state.save(); err != nil {
		return errors.Join(err, process.Stop(context.WithoutCancel(ctx)))
	}

	serving, leave := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- process.Run(serving, listener, func() { close(ready) }) }()
	select {
	case <-ready:
		err = d.show(serving, db, localURL(listener))
	case err = <-ended:
		ended <- nil
	}
	leave()
	return errors.Join(err, <-ended)
}

// withoutBureau does something while the bureau is down. It comes back at the
// same address, repaired: it has a file on everybody.
func (d *demoRun) withoutBureau(ctx context.Context, do func() error) error {
	address := d.bureau.Addr()
	if err := d.bureau.Close(); err != nil {
		return fmt.Errorf("stop the bureau: %w", err)
	}
	err := do()
	config := bureau.Realistic(demoSeed)
	config.DownShare = 0
	server, startErr := bureau.Start(ctx, address, config)
	if startErr != nil {
		return errors.Join(err, fmt.Errorf("start the bureau again: %w", startErr))
	}
	d.bureau = server
	return err
}

// mailbox is the folder that takes the messages of the demo.
func (d *demoRun) mailbox() string { return filepath.Join(d.command.DataDir, "mail") }

// show is what happens while the service runs.
func (d *demoRun) show(ctx context.Context, db *database, url string) error {
	d.screen.step("the service answers at %s, the bureau at %s", url, d.bureau.URL())
	credentials, err := d.credentials(ctx, db)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	client := &demoClient{base: url, http: &http.Client{}}
	if err := client.signIn(ctx, credentials.ClientID.String(), credentials.Secret); err != nil {
		return err
	}
	walk := &tour{
		client: client, bureau: func() *bureau.Server { return d.bureau }, withoutBureau: d.withoutBureau,
		state: d.state, screen: d.screen, outputs: filepath.Join(d.command.DataDir, "output"), mailbox: d.mailbox(),
	}
	if err := walk.run(ctx); err != nil {
		return err
	}
	if d.command.Exit {
		return nil
	}
	d.screen.next(url, db.url, credentials)
	<-ctx.Done()
	return nil
}

// credentials makes the demo's tenant, unless an earlier run did, and a client
// of it for this run, as the operator's commands do.
func (d *demoRun) credentials(ctx context.Context, db *database) (made identity.Credentials, err error) {
	pool, err := db.pool(ctx)
	if err != nil {
		return made, err
	}
	defer pool.Close()
	ctx = audit.WithOrigin(ctx, audit.Operator, "")
	err = postgres.InTx(ctx, pool, func(tx pgx.Tx) error {
		tenant, err := identity.FindTenant(ctx, tx, demoTenant)
		if errors.Is(err, fault.NotFound) {
			tenant, err = identity.CreateTenant(ctx, tx, demoTenant)
		}
		if err != nil {
			return err
		}
		made, err = identity.CreateClient(ctx, tx, identity.NewClient{
			Tenant: tenant, Name: "demo", Scopes: identity.RoleAdmin.Scopes(),
		})
		return err
	})
	return made, err
}
