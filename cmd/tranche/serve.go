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

// retentionMonthsMin is longer than the longest execution.
const retentionMonthsMin = 2

// serveCommand runs the service until it is told to stop.
type serveCommand struct {
	Addr        string      `name:"addr" env:"TRANCHE_ADDR" default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address to listen on (${default})."`
	Role        server.Role `name:"role" env:"TRANCHE_ROLE" enum:"all,api,worker" default:"all" placeholder:"ROLE" help:"Work of this process: all, api (serves requests) or worker (runs batches, retries and asynchronous executions, and serves only health checks)."`
	PublicURL   string      `name:"public-url" env:"PUBLIC_URL" placeholder:"URL" help:"Public address of the service. Links begin with it and access tokens are issued for it. By default, links contain the listen address."`
	Proxies     []string    `name:"trusted-proxies" env:"TRANCHE_TRUSTED_PROXIES" placeholder:"CIDR,…" help:"Proxies in front of the service. Their X-Forwarded-For is trusted. By default, the caller's address is the remote end of the connection."`
	MetricsAddr string      `name:"metrics-addr" env:"TRANCHE_METRICS_ADDR" placeholder:"HOST:PORT" help:"Address of /metrics for Prometheus. It needs no token, so only Prometheus should be able to reach it. By default, metrics are not served."`
	EgressAllow string      `name:"egress-allow" env:"TRANCHE_EGRESS_ALLOW" placeholder:"CIDR[:PORT],…" help:"Addresses that workflows may call although they are not public, for example 10.0.0.0/8 or 10.1.2.3/32:8443."`

	APIConns    int32 `name:"api-conns" env:"TRANCHE_API_CONNS" group:"Database" default:"20" placeholder:"N" help:"Maximum number of database connections for requests (${default})."`
	WorkerConns int32 `name:"worker-conns" env:"TRANCHE_WORKER_CONNS" group:"Database" default:"20" placeholder:"N" help:"Maximum number of database connections for background work (${default})."`

	RetentionMonths int `name:"retention-months" env:"TRANCHE_RETENTION_MONTHS" group:"Database" default:"0" placeholder:"N" help:"Number of whole months that executions are kept, at least 2. Older partitions are dropped. 0 keeps executions forever (${default})."`

	databaseFlags
	keyFlags
	messageFlags

	exceptions egress.Exceptions
	proxies    []netip.Prefix
}

// Help returns the long help of the command.
func (*serveCommand) Help() string {
	return "Prints `listening on http://…` to stdout when it is ready, and logs to stderr. SIGTERM or SIGINT stops it: " +
		"it accepts no new requests, finishes running work or hands it over to other processes, and exits with 0 within 30 seconds. " +
		"If DATABASE_URL is set, run tranche migrate first. The program's own database is migrated automatically."
}

// AfterApply parses flags that are more than text, so that a mistake is reported as a
// wrong command line.
func (c *serveCommand) AfterApply() (err error) {
	if c.exceptions, err = egress.ParseAllow(c.EgressAllow); err != nil {
		return err
	}
	for _, text := range c.Proxies {
		proxy, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("--trusted-proxies: %s is not a CIDR such as 10.0.0.0/8", text)
		}
		c.proxies = append(c.proxies, proxy)
	}
	if c.APIConns < 1 || c.WorkerConns < 1 {
		return errors.New("--api-conns and --worker-conns must be at least 1")
	}
	if c.RetentionMonths != 0 && c.RetentionMonths < retentionMonthsMin {
		return errors.New("--retention-months must be 0 or at least 2")
	}
	if c.PublicURL == "" {
		return nil
	}
	c.PublicURL = strings.TrimRight(c.PublicURL, "/")
	public, err := url.Parse(c.PublicURL)
	if err != nil || (public.Scheme != "http" && public.Scheme != "https") || public.Host == "" ||
		public.User != nil || public.RawQuery != "" || public.Fragment != "" {
		return errors.New("PUBLIC_URL must begin with http:// or https:// and contain a host and optionally a path")
	}
	return nil
}

// Run serves until SIGTERM or SIGINT.
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

// server prepares the database and wires the process.
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
		log.InfoContext(ctx, "serving metrics", "url", localURL(metrics)+"/metrics")
	}
	if len(c.exceptions) > 0 {
		log.WarnContext(ctx, "workflows may call non-public addresses", "egressAllow", c.exceptions.String())
	}
	return server.New(ctx, server.Config{
		DatabaseURL: db.url, APIConns: c.APIConns, WorkerConns: c.WorkerConns, RetentionMonths: c.RetentionMonths,
		Role: c.Role, BaseURL: baseURL, Issuer: c.PublicURL,
		Keys: keys, Egress: c.exceptions, Senders: senders, TrustedProxies: c.proxies,
		Metrics: metrics, Clock: time.Now, Log: log,
	})
}

// localURL returns the address of a listener, with localhost if it listens on all
// addresses of the machine.
func localURL(listener net.Listener) string {
	addr, ok := listener.Addr().(*net.TCPAddr)
	if ok && addr.IP.IsUnspecified() {
		return fmt.Sprintf("http://localhost:%d", addr.Port)
	}
	return "http://" + listener.Addr().String()
}

// unlessCancelled returns err, or nil if a signal has ended ctx.
func unlessCancelled(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}
