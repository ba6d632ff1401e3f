// Package service wires the parts of Tranche into one process: the one place
// where `tranche serve`, the demo and the tests get theirs from. It must not
// know command lines or the environment.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"tranche/internal/audit"
	"tranche/internal/egress"
	"tranche/internal/execution"
	"tranche/internal/identity"
	"tranche/internal/liveness"
	"tranche/internal/message"
	"tranche/internal/metrics"
	"tranche/internal/postgres"
	"tranche/internal/secret"
	"tranche/jobs"
	"tranche/jobs/workers"
	"tranche/migrations"
	"tranche/queries"
)

// Role is what a process does.
type Role string

// The roles.
const (
	RoleAll    Role = "all"    // answers requests and does background work
	RoleAPI    Role = "api"    // answers requests
	RoleWorker Role = "worker" // does background work; over HTTP it answers health checks only
)

// works reports whether the role includes background work.
func (r Role) works() bool { return r != RoleAPI }

const (
	// localIssuer is the iss and aud of access tokens where no public address
	// is configured: processes that share a database accept each other's.
	localIssuer = "urn:tranche:local"
	// controlConns are kept apart for the heartbeat, the look for what dead processes
	// held, the metrics, and readiness: a busy process must not look like a dead one,
	// and a look that waits for a lock must not make the process look as if it could
	// not work.
	controlConns = 4
)

// Config is what a process is made of.
type Config struct {
	DatabaseURL string
	// APIConns and WorkerConns are the sizes of the connection pools; 0 takes
	// the defaults of package postgres.
	APIConns, WorkerConns int32
	// RetentionMonths is for how many whole months executions are kept; 0 keeps
	// them for ever.
	RetentionMonths int

	Role Role
	// BaseURL is what links to this service begin with.
	BaseURL string
	// Issuer is the iss and aud of access tokens: the public address that is
	// configured, empty where none is.
	Issuer string
	// Keys seals what is confidential in the database.
	Keys *secret.Keyring
	// Egress are the operator's exceptions to the guard of outgoing requests.
	Egress egress.Exceptions
	// TrustedProxies are those whose X-Forwarded-For tells where a request came from.
	TrustedProxies []netip.Prefix
	// Senders are the ways by which one-time passwords go out.
	Senders message.Senders

	// Metrics is where Prometheus reads what the process did (/metrics, to anybody who
	// comes); nil is nowhere. Stop closes it.
	Metrics net.Listener

	Clock func() time.Time
	Log   *slog.Logger
}

// Service is one process: every part of it, connected.
type Service struct {
	config   Config
	pools    *postgres.Pools
	control  *pgxpool.Pool
	process  *liveness.Process
	metrics  *metrics.Metrics
	identity *identity.Service
	refusals *audit.Refusals
	parts    *parts
	workers  *jobs.Client // nil in role api
	handler  http.Handler
	shown    *http.Server // of the metrics; nil before Start, and where nobody reads them

	listening *listening // nil before Start
}

// New connects the parts. It fails with migrations.ErrBehind, ErrAhead or ErrLZ4
// when the database does not have the schema of this program or was moved to a
// server that cannot read it, with fault.Unavailable when it does not answer,
// and when the signing keys are sealed under another master key. The process is
// known to others from here on: Stop ends that.
func New(ctx context.Context, config Config) (_ *Service, err error) {
	if config.Issuer == "" {
		config.Issuer = localIssuer
	}
	s := &Service{config: config, metrics: metrics.New()}
	defer func() {
		if err != nil {
			s.close(context.WithoutCancel(ctx))
		}
	}()
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	s.identity, err = identity.New(ctx, s.pools.API, identity.Config{
		Issuer: config.Issuer, Keys: config.Keys, Clock: config.Clock,
	})
	if errors.Is(err, secret.ErrUnknownKey) {
		return nil, fmt.Errorf("TRANCHE_MASTER_KEY is not the key that this database was set up with: %w", err)
	}
	if err != nil {
		return nil, err
	}
	s.refusals = audit.NewRefusals(s.control, config.Clock, config.Log)
	if s.process, err = liveness.Start(ctx, s.control, string(config.Role), config.Role.works(), execution.TakeBack, config.Log); err != nil {
		return nil, fmt.Errorf("announce the process: %w", postgres.Translate(err))
	}
	// Where no process has worked for so many months there is none of this month, and
	// maintenance makes it only a while after the first requests.
	if err := queries.New().SysExecutionPartitionsBegin(ctx, s.control, workers.PartitionMonthsAhead); err != nil {
		return nil, fmt.Errorf("make the partitions of the coming months: %w", postgres.Translate(err))
	}
	if err := s.assemble(); err != nil {
		return nil, err
	}
	s.watch()
	return s, nil
}

// connect opens the database and checks its schema.
func (s *Service) connect(ctx context.Context) (err error) {
	s.pools, err = postgres.Open(ctx, postgres.Config{
		URL: s.config.DatabaseURL, APIConns: s.config.APIConns, WorkerConns: s.config.WorkerConns,
		Log: s.config.Log,
	})
	if err != nil {
		return err
	}
	s.control, err = postgres.NewPool(ctx, s.config.DatabaseURL, postgres.PoolOptions{
		Name: "tranche control", Conns: controlConns, Unscoped: postgres.SeesAll,
	})
	if err != nil {
		return err
	}
	return migrations.Behind(ctx, s.control)
}

// Handler answers the HTTP requests of the process.
func (s *Service) Handler() http.Handler { return s.handler }

// Start begins to listen to other processes, and the background work of the role.
func (s *Service) Start(ctx context.Context) error {
	s.listen(ctx)
	s.showMetrics()
	if s.workers == nil {
		return nil
	}
	if err := s.workers.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("start the workers: %w", postgres.Translate(err))
	}
	s.parts.background.schedules.Start(ctx)
	return nil
}

// Stop ends the process in order: work that runs is finished, or handed over
// once ctx ends, then the process says that it is gone and closes its
// connections. Requests must have ended before, or be ended by the caller
// meanwhile (Run does).
func (s *Service) Stop(ctx context.Context) error {
	err := s.drain(ctx)
	s.close(ctx)
	return err
}

// drain finishes or hands over what runs. What still does after drainTimeMax is
// interrupted; River does so by itself.
func (s *Service) drain(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, drainTimeMax)
	defer cancel()
	var group errgroup.Group
	group.Go(func() error {
		s.parts.requests.executions.Stop(patience)
		return nil
	})
	group.Go(func() error {
		defer s.parts.background.executions.Stop(patience)
		if s.workers == nil {
			return nil
		}
		s.parts.background.schedules.Stop()
		return s.workers.Stop(ctx)
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("stop the workers: %w", err)
	}
	return nil
}

// close undoes New, as far as it came.
func (s *Service) close(ctx context.Context) {
	s.deafen()
	if s.shown != nil {
		_ = s.shown.Close()
	}
	if s.refusals != nil {
		if err := s.refusals.Flush(ctx); err != nil {
			s.config.Log.WarnContext(ctx, "refused requests of the last minute are not counted", "error", err)
		}
	}
	if s.process != nil {
		if err := s.process.Stop(ctx); err != nil {
			s.config.Log.WarnContext(ctx, "the process could not sign off; others will find it dead", "error", err)
		}
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if s.control != nil {
			s.control.Close()
		}
		if s.pools != nil {
			s.pools.Close()
		}
	}()
	if s.parts != nil {
		s.parts.egress.Close()
	}
	select {
	case <-closed:
	case <-ctx.Done(): // somebody holds a connection; the end of the process frees it
	}
}
