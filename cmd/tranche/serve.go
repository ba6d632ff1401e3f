package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"tranche/internal/egress"
	"tranche/internal/server"
)

// retentionMonthsMin is longer than any execution may take.
const retentionMonthsMin = 2

// serveCommand runs the service until it is told to stop.
type serveCommand struct {
	Addr        string      `name:"addr" env:"TRANCHE_ADDR" default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address to listen on (${default})."`
	Role        server.Role `name:"role" env:"TRANCHE_ROLE" enum:"all,api,worker" default:"all" placeholder:"ROLE" help:"What this process does: all, api (answers requests) or worker (runs batches, retries and asynchronous executions; over HTTP it answers health checks only)."`
	PublicURL   string      `name:"public-url" env:"PUBLIC_URL" placeholder:"URL" help:"Address under which callers reach the service: links begin with it, and access tokens are issued for it. Without it links name the address listened on."`
	Proxies     []string    `name:"trusted-proxies" env:"TRANCHE_TRUSTED_PROXIES" placeholder:"CIDR,…" help:"Proxies in front, whose X-Forwarded-For says where a request came from. Without them it is the other end of the connection."`
	MetricsAddr string      `name:"metrics-addr" env:"TRANCHE_METRICS_ADDR" placeholder:"HOST:PORT" help:"Address on which Prometheus reads /metrics, without a token: one that only it can reach. Without it nothing listens."`
	EgressAllow string      `name:"egress-allow" env:"TRANCHE_EGRESS_ALLOW" placeholder:"CIDR[:PORT],…" help:"Addresses that workflows may call although they are not public."`

	APIConns    int32 `name:"api-conns" env:"TRANCHE_API_CONNS" group:"Database" default:"20" placeholder:"N" help:"Most database connections for requests (${default})."`
	WorkerConns int32 `name:"worker-conns" env:"TRANCHE_WORKER_CONNS" group:"Database" default:"20" placeholder:"N" help:"Most database connections for background work (${default})."`

	RetentionMonths int `name:"retention-months" env:"TRANCHE_RETENTION_MONTHS" group:"Database" default:"0" placeholder:"N" help:"For how many whole months executions are kept before their partitions are dropped, at least 2; 0 keeps them for ever (${default})."`

	databaseFlags
	keyFlags
	messageFlags

	exceptions egress.Exceptions
	proxies    []netip.Prefix
}

// Help is the long form of the command's help.
func (*serveCommand) Help() string {
	return "Prints `listening on http://…` to stdout when it is ready and logs to stderr. SIGTERM or SIGINT stops it: " +
		"it accepts no more requests, lets what runs finish or hands it over to other processes, and exits 0 within 30 seconds. " +
		"On a database given by DATABASE_URL run tranche migrate first; its own server's database is migrated by itself."
}

// AfterApply reads what is more than text, so that a fault in it is a wrong
// command line.
func (c *serveCommand) AfterApply() (err error) {
	if c.exceptions, err = egress.ParseAllow(c.EgressAllow); err != nil {
		return err
	}
	for _, text := range c.Proxies {
		proxy, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("--trusted-proxies: %s is not a CIDR", text)
		}
		c.proxies = append(c.proxies, proxy)
	}
	if c.APIConns < 1 || c.WorkerConns < 1 {
		return errors.New("--api-conns and --worker-conns are at least 1")
	}
	if c.RetentionMonths != 0 && c.RetentionMonths < retentionMonthsMin {
		return errors.New("--retention-months is 0 or at least 2")
	}
	if c.PublicURL == "" {
		return nil
	}
	c.PublicURL = strings.TrimRight(c.PublicURL, "/")
	public, err := url.Parse(c.PublicURL)
	if err != nil || (public.Scheme != "http" && public.Scheme != "https") || public.Host == "" ||
		public.User != nil || public.RawQuery != "" || public.Fragment != "" {
		return errors.New("PUBLIC_URL is http:// or https:// with a host and perhaps a path")
	}
	return nil
}

// Run serves until a signal.
func (c *serveCommand) Run(ctx context.Context, out *console, log *slog.Logger) (err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Addr)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	var metrics net.Listener
	if c.MetricsAddr != "" {
		if metrics, err = (&net.ListenConfig{}).Listen(ctx, "tcp", c.MetricsAddr); err != nil {
			return fmt.Errorf("--metrics-addr: %w", err)
		}
		defer func() { _ = metrics.Close() }()
	}
	db, err := c.databaseFlags.open(ctx, out, log)
	if err != nil {
		return unlessCancelled(ctx, err)
	}
	defer func() { err = errors.Join(err, db.close()) }()
	process, err := c.server(ctx, db, listener, metrics, log)
	if err != nil {
		return unlessCancelled(ctx, err)
	}
	return process.Run(ctx, listener, func() {
		fmt.Fprintf(out.Out, "listening on %s\n", localURL(listener))
	})
}

// service wires the process on a database that is ready for it.
func (c *serveCommand) server(ctx context.Context, db *database, listener, metrics net.Listener, log *slog.Logger) (*server.Server, error) {
	keys, err := c.keyFlags.open(db)
	if err != nil {
		return nil, err
	}
	senders, err := c.senders()
	if err != nil {
		return nil, err
	}
	pool, err := db.pool(ctx)
	if err != nil {
		return nil, err
	}
	err = db.prepareOnceStarted(ctx, pool, log)
	pool.Close()
	if err != nil {
		return nil, err
	}
	baseURL := c.PublicURL
	if baseURL == "" {
		baseURL = localURL(listener)
	}
	log.InfoContext(ctx, "serving", "version", version(), "role", string(c.Role), "baseUrl", baseURL, "ownDatabase", db.server != nil)
	if metrics != nil {
		log.InfoContext(ctx, "metrics can be read", "url", localURL(metrics)+"/metrics")
	}
	if len(c.exceptions) > 0 {
		log.WarnContext(ctx, "workflows may call addresses that are not public", "egressAllow", c.exceptions.String())
	}
	return server.New(ctx, server.Config{
		DatabaseURL: db.url, APIConns: c.APIConns, WorkerConns: c.WorkerConns, RetentionMonths: c.RetentionMonths,
		Role: c.Role, BaseURL: baseURL, Issuer: c.PublicURL,
		Keys: keys, Egress: c.exceptions, Senders: senders, TrustedProxies: c.proxies,
		Metrics: metrics, Clock: time.Now, Log: log,
	})
}

// localURL is the address listened on; where that is every address of the
// machine, localhost stands for them.
func localURL(listener net.Listener) string {
	addr, ok := listener.Addr().(*net.TCPAddr)
	if ok && addr.IP.IsUnspecified() {
		return fmt.Sprintf("http://localhost:%d", addr.Port)
	}
	return "http://" + listener.Addr().String()
}

// unlessCancelled drops the error of a start that a signal interrupted.
func unlessCancelled(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}
