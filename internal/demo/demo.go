// Package demo shows the service at work: it starts a stand-in credit bureau, then
// walks through the API as a client. It must not know command lines or how a service
// is started.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/audit"
	"tranche/internal/demo/bureau"
	"tranche/internal/fault"
	"tranche/internal/identity"
	"tranche/internal/postgres"
)

const (
	tenantSlug = "demo"
	bureauSeed = 20261121
)

// Demo is one run of the demo. It keeps its state in a directory, so that a run
// continues the batch of an interrupted one.
type Demo struct {
	dir    string
	screen *screen
	state  *state
	bureau *bureau.Server
}

// Service is the running service that the demo uses.
type Service struct {
	URL         string
	DatabaseURL string
	// Pool creates the tenant and the client of the demo, as an operator's commands do.
	Pool *pgxpool.Pool
}

// Open reads the state of an earlier run from dir and starts the bureau. The demo
// prints its steps to out.
func Open(ctx context.Context, dir string, out io.Writer) (*Demo, error) {
	d := &Demo{dir: dir, screen: newScreen(out)}
	var err error
	if d.state, err = loadState(dir); err != nil {
		return nil, err
	}
	if d.bureau, err = openBureau(ctx, d.state.Bureau); err != nil {
		return nil, fmt.Errorf("start the stand-in bureau: %w", err)
	}
	return d, nil
}

// openBureau starts the bureau at the address in the published workflows. If that is
// not free, it takes another.
func openBureau(ctx context.Context, address string) (*bureau.Server, error) {
	config := bureau.Realistic(bureauSeed)
	if address != "" {
		if server, err := bureau.Start(ctx, address, config); err == nil {
			return server, nil
		}
	}
	return bureau.Start(ctx, "127.0.0.1:0", config)
}

// BureauAddress returns the host and port of the bureau, which the service must be
// allowed to call.
func (d *Demo) BureauAddress() string { return d.bureau.Addr() }

// MailDir returns the directory to which the service must deliver messages.
func (d *Demo) MailDir() string { return filepath.Join(d.dir, "mail") }

// Close stops the bureau.
func (d *Demo) Close() error { return d.bureau.Close() }

// Run walks through the service: it publishes the sample workflows, executes them,
// runs a batch, corrects and retries it. It returns the credentials of its client.
func (d *Demo) Run(ctx context.Context, service Service) (credentials identity.Credentials, err error) {
	d.state.Bureau = d.bureau.Addr()
	if err := d.state.save(); err != nil {
		return credentials, err
	}
	d.screen.step("PostgreSQL runs in %s", d.dir)
	d.screen.step("the service listens on %s, the bureau on %s", service.URL, d.bureau.URL())
	if credentials, err = createClient(ctx, service.Pool); err != nil {
		return credentials, fmt.Errorf("create a client: %w", err)
	}
	c := &client{base: service.URL, http: &http.Client{}}
	if err := c.signIn(ctx, credentials.ClientID.String(), credentials.Secret); err != nil {
		return credentials, err
	}
	t := &tour{demo: d, client: c, outputs: filepath.Join(d.dir, "output")}
	return credentials, t.run(ctx)
}

// PrintNext prints commands with which the reader can continue.
func (d *Demo) PrintNext(service Service, credentials identity.Credentials) {
	d.screen.printNext(service.URL, service.DatabaseURL, credentials)
}

// withoutBureau calls work while the bureau is stopped. The bureau restarts at the same
// address with its files repaired: it then answers for every borrower.
func (d *Demo) withoutBureau(ctx context.Context, work func() error) error {
	address := d.bureau.Addr()
	if err := d.bureau.Close(); err != nil {
		return fmt.Errorf("stop the bureau: %w", err)
	}
	err := work()
	config := bureau.Realistic(bureauSeed)
	config.DownShare = 0
	server, startErr := bureau.Start(ctx, address, config)
	if startErr != nil {
		return errors.Join(err, fmt.Errorf("restart the bureau: %w", startErr))
	}
	d.bureau = server
	return err
}

// createClient creates a client for this run, and the tenant unless an earlier run
// created it.
func createClient(ctx context.Context, pool *pgxpool.Pool) (created identity.Credentials, err error) {
	ctx = audit.WithOrigin(ctx, audit.Operator, "")
	err = postgres.InTx(ctx, pool, func(tx pgx.Tx) error {
		tenant, err := identity.FindTenant(ctx, tx, tenantSlug)
		if errors.Is(err, fault.NotFound) {
			tenant, err = identity.CreateTenant(ctx, tx, tenantSlug)
		}
		if err != nil {
			return err
		}
		created, err = identity.CreateClient(ctx, tx, identity.NewClient{
			Tenant: tenant, Name: "demo", Scopes: identity.RoleAdmin.Scopes(),
		})
		return err
	})
	return created, err
}
