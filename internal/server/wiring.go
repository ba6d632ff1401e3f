package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"runtime"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"tranche/api"
	"tranche/internal/batch"
	"tranche/internal/batch/ingest"
	"tranche/internal/batch/output"
	"tranche/internal/batch/runner"
	"tranche/internal/catalog"
	"tranche/internal/consent"
	"tranche/internal/egress"
	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/httpapi"
	"tranche/internal/logging"
	"tranche/internal/schedule"
	"tranche/internal/secret"
	"tranche/internal/storage"
	"tranche/internal/task"
	"tranche/jobs"
	"tranche/jobs/workers"
	"tranche/migrations"
	"tranche/queries"
)

const (
	// readyTimeMax bounds one check of /readyz.
	readyTimeMax = 2 * time.Second
	// lingerTime is how long a group commit of background executions waits for more of
	// them. Larger groups leave more processor time to requests.
	lingerTime = 3 * time.Millisecond
)

// parts holds the services of the domain.
type parts struct {
	egress  *egress.Client
	catalog *catalog.Catalog
	// requests and background have a connection pool each, so that neither can starve
	// the other.
	requests   *side
	background *side
}

// side holds the services that share one connection pool.
type side struct {
	store      *storage.Store
	executions *execution.Service
	dispatcher *batch.Dispatcher
	batches    *batch.Service
	schedules  *schedule.Service
	consents   *consent.Service
}

// assemble creates the services of the domain, the workers and the API.
func (s *Server) assemble() error {
	// River logs each of its steps; only warnings and errors are useful here.
	riverLog := logging.AtLeast(s.config.Log, slog.LevelWarn)
	// The client that only enqueues is separate, because the client of the workers
	// needs workers that enqueue.
	enqueue, err := jobs.NewClient(s.pools.API, jobs.Config{ProcessID: s.process.ID, Logger: riverLog})
	if err != nil {
		return err
	}
	p := &parts{egress: egress.New(s.config.Egress)}
	p.egress.Report(s.config.Clock, s.metrics.Call)
	secrets := secret.New(s.pools.API, s.config.Keys)
	p.catalog = catalog.New(s.pools.API, task.Types(task.Ports{
		HTTP: p.egress, Log: s.config.Log, RevealSecret: revealer(secrets),
		FindAuthorization: func(ctx context.Context, q task.AuthorizationQuery) (task.Authorization, bool, error) {
			return findAuthorization(ctx, p.requests.consents, q)
		},
	}))
	p.background = s.newSide(s.pools.Workers, p.catalog, enqueue, lingerTime)
	p.requests = s.newSide(s.pools.API, p.catalog, enqueue, 0)
	s.parts = p
	if s.config.Role.works() {
		s.workers, err = jobs.NewClient(s.pools.Queue, jobs.Config{
			ProcessID: s.process.ID, Logger: riverLog,
			Workers:    workers.New(s.workerParts()),
			Middleware: append(workers.Middleware(), river.WorkerMiddlewareFunc(s.countJob)),
		})
		if err != nil {
			return err
		}
	}
	s.handler = api.New(api.Config{
		HTTP: httpapi.Config{
			Log: s.config.Log, Clock: s.config.Clock,
			Verify: s.identity.Verify, Admit: s.identity.Admit, Denied: s.denied.Count, Answered: s.metrics.Request,
			TrustedProxies:  s.config.TrustedProxies,
			FingerprintKeys: s.config.Keys.DeriveAll("fingerprints of requests"),
			Pool:            s.pools.API,
		},
		Ready: s.readiness(), HealthOnly: s.config.Role == RoleWorker,
		Identity: s.identity, Catalog: p.catalog, Executions: p.requests.executions,
		Callbacks: s.callbacks(), Secrets: secrets,
		Batches: p.requests.batches, Schedules: p.requests.schedules, Consents: p.requests.consents, Store: p.requests.store,
		Signer: storage.NewSigner(s.config.Keys.Derive("signed addresses"), s.config.BaseURL, s.config.Clock),
		Pool:   s.pools.API,
	})
	return nil
}

func (s *Server) newSide(pool *pgxpool.Pool, plans *catalog.Catalog, enqueue *jobs.Client, linger time.Duration) *side {
	store := storage.New(pool)
	executions := execution.New(execution.Config{
		Pool: pool, Jobs: enqueue, Catalog: plans,
		Runner:    &engine.Runner{Clock: s.config.Clock, Log: s.config.Log},
		Callbacks: s.callbacks(), Linger: linger,
		Ended:     func(status engine.Status, n int) { s.metrics.Executions(string(status), n) },
		ProcessID: s.process.ID, Clock: s.config.Clock, Log: s.config.Log,
	})
	dispatcher := batch.NewDispatcher(pool, enqueue, plans)
	batches := batch.New(batch.Config{
		Pool: pool, Jobs: enqueue, Catalog: plans, Dispatcher: dispatcher, Executions: executions, Store: store, Clock: s.config.Clock,
	})
	schedules := schedule.New(schedule.Config{
		Pool: pool, Jobs: enqueue, Catalog: plans, Executions: executions, Batches: batches,
		Clock: schedule.DatabaseClock, Log: s.config.Log,
	})
	consents := consent.New(consent.Config{
		Pool: pool, Jobs: enqueue, Store: store, Keys: s.config.Keys, Senders: s.config.Senders, Log: s.config.Log,
	})
	return &side{store: store, executions: executions, dispatcher: dispatcher, batches: batches, schedules: schedules, consents: consents}
}

// workerParts returns the parts of the background side that work on jobs.
func (s *Server) workerParts() workers.Parts {
	side, pool := s.parts.background, s.pools.Workers
	// One processor stays free for requests, so that a large batch does not delay a caller's
	// response (docs/performance.md).
	processors := batch.NewProcessors(max(1, runtime.GOMAXPROCS(0)-1))
	return workers.Parts{
		Pool: pool, Executions: side.executions, Batches: side.batches, Consents: side.consents,
		Ingester: ingest.New(ingest.Config{
			Pool: pool, Catalog: s.parts.catalog, Store: side.store, Dispatcher: side.dispatcher, Processors: processors, Clock: s.config.Clock,
			CountRefused: func(items int) { side.executions.NoteEnded(engine.StatusFailed, items) },
		}),
		Runner: runner.New(runner.Config{
			Pool: pool, Catalog: s.parts.catalog, Executions: side.executions, Dispatcher: side.dispatcher, Processors: processors,
			Clock: s.config.Clock, Log: s.config.Log,
		}),
		Output:          output.New(output.Config{Pool: pool, Store: side.store, Processors: processors, Clock: s.config.Clock}),
		RetentionMonths: s.config.RetentionMonths, Clock: s.config.Clock, Log: s.config.Log,
	}
}

// countJob reports each job to the heartbeat and to the metrics.
func (s *Server) countJob(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) (err error) {
	defer s.process.TrackJob(job.ID)()
	begun := s.config.Clock()
	defer func() { s.metrics.Job(job.Kind, err, s.config.Clock().Sub(begun)) }()
	return work(ctx)
}

// callbacks creates and verifies callback addresses. Addresses made under an earlier
// master key stay valid as long as their task waits.
func (s *Server) callbacks() *execution.Callbacks {
	return execution.NewCallbacks(s.config.Keys.DeriveAll("callback addresses"), s.config.BaseURL)
}

// revealer returns the port by which http-request tasks read secrets.
func revealer(secrets *secret.Store) func(context.Context, uuid.UUID, string) (task.Secret, bool, error) {
	return func(ctx context.Context, tenantID uuid.UUID, name string) (task.Secret, bool, error) {
		revealed, err := secrets.Reveal(ctx, tenantID, name)
		if errors.Is(err, fault.NotFound) {
			return task.Secret{}, false, nil
		}
		if err != nil {
			return task.Secret{}, false, err
		}
		return task.Secret{
			Value: revealed.Value, UpdatedAt: revealed.UpdatedAt,
			Bound: func(address *url.URL) bool { return secret.Bound(revealed.Hosts, address) },
		}, true, nil
	}
}

// findAuthorization is the port by which authorization-check tasks find a consent.
func findAuthorization(ctx context.Context, consents *consent.Service, q task.AuthorizationQuery) (task.Authorization, bool, error) {
	proof, found, err := consents.Find(ctx, q.TenantID, consent.Question{
		Key: q.Key, IdentityKey: q.IdentityKey, IdentityValue: q.IdentityValue, BorrowerID: q.BorrowerID,
	})
	return task.Authorization{ID: proof.AuthorizationID, AuthorizedAt: proof.AuthorizedAt, ExpiresAt: proof.ExpiresAt}, found, err
}

// readiness returns the checks of /readyz by name.
func (s *Server) readiness() map[string]func(context.Context) error {
	checks := map[string]func(context.Context) error{
		"database": s.checkDatabase,
	}
	if s.workers != nil {
		checks["workers"] = s.checkWorkers
	}
	return checks
}

// checkDatabase checks the schema of the database and that it is writable. A newer
// schema is ready: a newer version of the program is being rolled out.
func (s *Server) checkDatabase(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeMax)
	defer cancel()
	if err := migrations.Behind(ctx, s.control); err != nil && !errors.Is(err, migrations.ErrAhead) {
		return err
	}
	isReadOnly, err := queries.New().SysDatabaseIsReadOnly(ctx, s.control)
	if err != nil {
		return err
	}
	if isReadOnly {
		return errors.New("the database is read-only: it is a standby, or its writes were stopped")
	}
	return nil
}

func (s *Server) checkWorkers(context.Context) error {
	select {
	case <-s.workers.Stopped():
		return fmt.Errorf("the workers have stopped")
	default:
		return nil
	}
}
