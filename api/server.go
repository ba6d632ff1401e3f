// Package api is the HTTP face of the service: Huma operations on a chi
// router, one file per resource. It decodes, authorises, calls one operation
// of the domain and encodes; it owns no rule of the domain and must not know
// jobs/workers.
//
// # How to add an endpoint
//
//  1. Find or make the file of the resource (workflows.go) and its function
//     `func thingRoutes(s *Server)`; name that function in the list of New.
//  2. Declare input and output types of the endpoint. The input's fields are
//     tagged path, query or header; `Body` is the JSON body. The output has
//     `Body`, header fields and, where the success status varies, `Status int`.
//     Every field has a doc and, where it helps, an example tag. Values that
//     must keep their exact text are JSON, times are Timestamp.
//  3. Call register(s, operation{...}, handler) with all of the operation:
//     scope, category, body limit, success status, examples and the statuses
//     of the errors it can answer with beyond the shared ones.
//  4. The handler asks principal(ctx) who calls, calls one function of the
//     domain and returns its error as it is: problem.go turns fault kinds into
//     answers. A handler that works on an execution calls noteExecution, so
//     that the log lines of its answer name it.
//  5. Run `make openapi` and write the test with internal/apitest, refusals
//     beside successes; TestEveryOperationIsDocumented names what is missing.
//
// Bodies are read, checked for strict JSON and validated against the declared
// schema before the handler runs (body.go, validate.go); what a schema cannot
// express is checked by operation.inspect, so that all faults of a body are
// reported together. A handler that needs the body's exact tree instead of a
// struct declares operation.bodySchema and takes the tree from body(ctx). A
// handler that streams is registered with registerRaw. Lists embed PageInput
// and call paginate (page.go).
package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/audit"
	batches "tranche/internal/batch"
	"tranche/internal/catalog"
	"tranche/internal/consent"
	"tranche/internal/execution"
	"tranche/internal/identity"
	"tranche/internal/limit"
	"tranche/internal/schedule"
	"tranche/internal/secret"
	"tranche/internal/storage"
)

// Config is what the endpoints work with. What no endpoint that is called needs may
// be nil.
type Config struct {
	Log   *slog.Logger
	Clock func() time.Time

	// Verify returns whom a bearer token speaks for; its refusals are
	// fault.Unauthorized. identity.Service.Verify.
	Verify func(ctx context.Context, token string) (identity.Principal, error)
	// Admit counts a request against the limit of its tenant; over it the error is
	// fault.RateLimited. Nil limits nothing. identity.Service.Admit.
	Admit func(context.Context, identity.Principal, identity.LimitCategory) (identity.Allowance, error)
	// Refused, unless nil, is told of every request answered with 401 or 403.
	Refused func(audit.Refusal)
	// Answered, unless nil, is told of every request: its method, the pattern of its
	// endpoint (empty where there is none), the answer's status and how long it took.
	Answered func(method, route string, status int, took time.Duration)
	// TrustedProxies are those whose X-Forwarded-For tells where a request came from.
	TrustedProxies []netip.Prefix
	// Ready holds the checks of /readyz by name; an error says what is not ready.
	Ready map[string]func(context.Context) error
	// HealthOnly leaves out everything but the health checks: for processes
	// that do background work only.
	HealthOnly bool

	Identity   *identity.Service
	Catalog    *catalog.Catalog
	Executions *execution.Service
	Callbacks  *execution.Callbacks
	Secrets    *secret.Store
	Batches    *batches.Service
	Schedules  *schedule.Service
	Consents   *consent.Service
	Store      *storage.Store
	Signer     *storage.Signer

	// FingerprintKeys are those of what is kept of requests with an
	// Idempotency-Key: the first makes, all recognise.
	FingerprintKeys [][]byte

	// Pool is for the reads that go from a handler to queries.
	Pool *pgxpool.Pool
}

// Server answers the HTTP requests of the service.
type Server struct {
	config   Config
	router   chi.Router
	huma     huma.API
	handler  http.Handler
	document func() []byte // written when it is first asked for: it takes a sixth of the time to start
	patterns patternCache
	// bodyTimeMax is how long a body may take to arrive before 408.
	bodyTimeMax time.Duration
	// bodies and answers limit the memory of large ones. They are separate because an
	// execution keeps its body while it runs.
	bodies, answers *limit.PerTenant
	reads           *limit.PerTenant
}

// New returns a server with every endpoint registered.
func New(config Config) *Server {
	s := &Server{
		config: config, router: chi.NewRouter(), bodyTimeMax: bodyTimeMaxDefault,
		bodies: limit.NewPerTenant(largeBytesMax), answers: limit.NewPerTenant(largeBytesMax), reads: limit.NewPerTenant(readsMax(config.Pool)),
	}
	s.router.Use(middleware.GetHead, noteRoute)
	s.router.NotFound(s.notFound)
	s.router.MethodNotAllowed(s.methodNotAllowed)
	s.huma = huma.NewAPI(humaConfig(), humachi.NewAdapter(s.router))
	s.huma.UseMiddleware(s.authenticate, s.limitRate, s.checkParameters, s.readBody, s.readIdempotencyKey)

	healthRoutes(s)
	if !config.HealthOnly {
		s.routes()
	}
	s.handler = s.observe(s.recoverPanic(s.router))
	s.document = sync.OnceValue(s.writeDocument)
	return s
}

// routes registers all that is not for the operator's probes.
func (s *Server) routes() {
	for _, routes := range []func(*Server){
		tokenRoutes,
		workflowRoutes,
		executeRoutes,
		executionRoutes,
		signalRoutes,
		secretRoutes,
		executionListRoutes,
		executionStateRoutes,
		executionControlRoutes,
		uploadRoutes,
		packageRoutes,
		batchRoutes,
		authorizationRoutes,
		scheduleRoutes,
	} {
		routes(s)
	}
	s.taskConfigs()
	s.documentRoutes()
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Document returns the OpenAPI document of the service.
func (s *Server) Document() []byte { return s.document() }
