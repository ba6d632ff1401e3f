// Package server wires the packages of Tranche into one process. `tranche serve`,
// the demo and the tests start their processes with it. It must not know command
// lines or the environment.
package server

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

// Role selects the work of a process.
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
	// localIssuer is the iss and aud of access tokens if no public address is
	// configured. Processes that share a database accept each other's tokens.
	localIssuer = "urn:tranche:local"
	// controlConns is the size of the pool for heartbeats, the failure detector,
	// metrics and readiness. A busy process must not look dead, and a failure detector
	// that waits for a lock must not block the readiness check.
	controlConns = 4
)

// Config configures a process.
type Config struct {
	DatabaseURL string
	// APIConns and WorkerConns are the sizes of the connection pools; 0 selects the
	// defaults of package postgres.
	APIConns, WorkerConns int32
	// RetentionMonths is the number of whole months that executions are kept; 0 keeps
	// them forever.
	RetentionMonths int

	Role Role
	// BaseURL is the beginning of all links to this service.
	BaseURL string
	// Issuer is the iss and aud of access tokens: the configured public address, or
	// empty.
	Issuer string
	// Keys seals confidential values in the database.
	Keys *secret.Keyring
	// Egress lists the operator's exceptions to the guard of outgoing requests.
	Egress egress.Exceptions
	// TrustedProxies lists the proxies whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
	// Senders deliver one-time passwords.
	Senders message.Senders

	// Metrics serves /metrics to Prometheus without authentication; nil serves none.
	// Stop closes it.
	Metrics net.Listener

	Clock func() time.Time
	Log   *slog.Logger
}

// Server is one process of the service.
type Server struct {
	config   Config
	pools    *postgres.Pools
	control  *pgxpool.Pool
	process  *liveness.Process
	metrics  *metrics.Metrics
	identity *identity.Service
	denied   *audit.Denied
	parts    *parts
	workers  *jobs.Client // nil in role api
	handler  http.Handler
	exporter *http.Server // serves the metrics; nil before Start and without Config.Metrics

	notifications *notifications // nil before Start
}

// notifications is the goroutine that receives notifications of other processes.
type notifications struct {
	stop  context.CancelFunc
	ended chan struct{}
}

// New connects the parts of the process and registers it, until Stop, with the other
// processes. It returns migrations.ErrBehind, ErrAhead or ErrLZ4 if the database does
// not have the schema of this program or its server cannot read the database, and
// fault.Unavailable if the database does not answer. It also fails if the signing keys
// are sealed with another master key.
func New(ctx context.Context, config Config) (_ *Server, err error) {
	if config.Issuer == "" {
		config.Issuer = localIssuer
	}
	s := &Server{config: config, metrics: metrics.New()}
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
	s.denied = audit.NewDenied(s.control, config.Clock, config.Log)
	if s.process, err = liveness.Start(ctx, s.control, string(config.Role), config.Role.works(), execution.RecoverAbandoned, config.Log); err != nil {
		return nil, fmt.Errorf("register the process: %w", postgres.Translate(err))
	}
	// If no process has run for months, the current month has no partition yet, and
	// maintenance creates it only some time after the first requests.
	if err := queries.New().SysExecutionPartitionsCreateFirst(ctx, s.control, workers.PartitionMonthsAhead); err != nil {
		return nil, fmt.Errorf("create the partitions of the next months: %w", postgres.Translate(err))
	}
	if err := s.assemble(); err != nil {
		return nil, err
	}
	s.metrics.Watch("api", s.pools.API)
	s.metrics.Watch("workers", s.pools.Workers)
	s.metrics.Watch("queue", s.pools.Queue)
	s.metrics.WatchDatabase(s.control, s.config.Log)
	return s, nil
}

// connect opens the database and checks its schema.
func (s *Server) connect(ctx context.Context) (err error) {
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

// Handler returns the handler of all HTTP requests of the process.
func (s *Server) Handler() http.Handler { return s.handler }

// Start starts to receive notifications of other processes, to serve metrics, and to
// do the background work of the role.
func (s *Server) Start(ctx context.Context) error {
	s.startNotifications(ctx)
	s.startExporter()
	if s.workers == nil {
		return nil
	}
	if err := s.workers.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("start the workers: %w", postgres.Translate(err))
	}
	s.parts.background.schedules.Start(ctx)
	return nil
}

// startNotifications subscribes to cancellations on the connection that receives
// notifications.
func (s *Server) startNotifications(ctx context.Context) {
	s.pools.Listen.Subscribe(execution.CancelChannel,
		execution.Subscription(s.parts.requests.executions, s.parts.background.executions))
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	n := &notifications{stop: stop, ended: make(chan struct{})}
	s.notifications = n
	go func() {
		defer close(n.ended)
		_ = s.pools.Listen.Run(ctx) // returns only the error of ctx
	}()
}

func (s *Server) stopNotifications() {
	if s.notifications != nil {
		s.notifications.stop()
		<-s.notifications.ended
	}
}

// Stop ends the process: it finishes running work, or hands it over when ctx ends,
// signs the process off and closes its connections. The caller must end all requests
// before or at the same time, as Run does.
func (s *Server) Stop(ctx context.Context) error {
	err := s.drain(ctx)
	s.close(ctx)
	return err
}

// drain finishes running work. Work that still runs after drainTimeMax is interrupted
// and handed over; River interrupts its jobs itself.
func (s *Server) drain(ctx context.Context) error {
	drainCtx, cancel := context.WithTimeout(ctx, drainTimeMax)
	defer cancel()
	var group errgroup.Group
	group.Go(func() error {
		s.parts.requests.executions.Stop(drainCtx)
		return nil
	})
	group.Go(func() error {
		defer s.parts.background.executions.Stop(drainCtx)
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

// close undoes New, and undoes an incomplete New as far as it got.
func (s *Server) close(ctx context.Context) {
	s.stopNotifications()
	if s.exporter != nil {
		_ = s.exporter.Close()
	}
	if s.denied != nil {
		if err := s.denied.Flush(ctx); err != nil {
			s.config.Log.WarnContext(ctx, "the denied requests of the last minute are not counted", "error", err)
		}
	}
	if s.process != nil {
		if err := s.process.Stop(ctx); err != nil {
			s.config.Log.WarnContext(ctx, "could not sign the process off; the failure detector of another process will", "error", err)
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
	case <-ctx.Done(): // a connection is still in use; the end of the process closes it
	}
}
