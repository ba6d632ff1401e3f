// Package httpapi answers HTTP requests: it registers operations with Huma on a
// chi router, authenticates callers, applies rate and memory limits, reads and
// validates bodies, replays answers of repeated requests, maps errors to HTTP
// and serves the OpenAPI document. It must not know any resource.
//
// A request passes these steps in this order:
//
//	observe               request id, log line          request.go
//	authenticate          bearer token and scope        auth.go
//	limitRate             rate limit of the tenant      ratelimit.go
//	checkParameters       unknown query parameters      parameter.go
//	readBody              strict JSON within limits     body.go, validate.go
//	readIdempotencyKey    the caller's key              idempotency.go
//	handler               a function of package api
//
// An error of any step becomes a Problem (problem.go).
package httpapi

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
	"tranche/internal/identity"
	"tranche/internal/limit"
)

// Config configures a Server.
type Config struct {
	Log   *slog.Logger
	Clock func() time.Time

	// Verify returns the principal of a bearer token. An invalid token is
	// fault.Unauthorized. It is identity.Service.Verify.
	Verify func(ctx context.Context, token string) (identity.Principal, error)
	// Admit counts a request against a rate limit of its tenant. A request over the
	// limit is fault.RateLimited. Nil means no limits. It is identity.Service.Admit.
	Admit func(context.Context, identity.Principal, identity.LimitCategory) (identity.Allowance, error)
	// Denied, if not nil, receives every request that is answered with 401 or 403.
	Denied func(audit.DeniedRequest)
	// Answered, if not nil, receives the method, route pattern, status and duration of
	// every request. The route is empty if no operation has the path.
	Answered func(method, route string, status int, took time.Duration)
	// TrustedProxies are the proxies whose X-Forwarded-For header is believed.
	TrustedProxies []netip.Prefix
	// SecretPath is a path prefix that is followed by a credential. The log shows
	// nothing after it. Empty means that there is none.
	SecretPath string

	// FingerprintKeys are the keys of the fingerprints that are stored for requests
	// with an Idempotency-Key. The first one signs; all of them verify.
	FingerprintKeys [][]byte
	// Pool reads stored answers. Its size limits how many reads one tenant may have
	// in progress.
	Pool *pgxpool.Pool
}

// Server answers the requests of the operations that Register adds.
type Server struct {
	config   Config
	router   chi.Router
	huma     huma.API
	handler  http.Handler
	document func() []byte // encoded on first use, because encoding would delay the start
	patterns patternCache
	// bodyTimeMax is how long a body may take to arrive, and how long a request may
	// wait for memory.
	bodyTimeMax time.Duration
	// bodies and answers limit the memory of large JSON separately: an execution
	// keeps its body in memory for as long as it runs.
	bodies, answers *limit.PerTenant
	reads           *limit.PerTenant // concurrent reads of a tenant
}

// New returns a Server without operations. about describes the service in the
// OpenAPI document.
func New(config Config, about About) *Server {
	s := &Server{
		config: config, router: chi.NewRouter(), bodyTimeMax: bodyTimeMaxDefault,
		bodies: limit.NewPerTenant(tenantBytesMax), answers: limit.NewPerTenant(tenantBytesMax), reads: limit.NewPerTenant(readsMax(config.Pool)),
	}
	s.router.Use(middleware.GetHead, noteRoute)
	s.router.NotFound(s.notFound)
	s.router.MethodNotAllowed(s.methodNotAllowed)
	s.huma = huma.NewAPI(humaConfig(about), humachi.NewAdapter(s.router))
	s.huma.UseMiddleware(s.authenticate, s.limitRate, s.checkParameters, s.readBody, s.readIdempotencyKey)
	s.handler = s.observe(s.recoverPanic(s.router))
	s.document = sync.OnceValue(s.encodeDocument)
	return s
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Document returns the OpenAPI document of all registered operations.
func (s *Server) Document() []byte { return s.document() }

// Schemas returns the component schemas of the OpenAPI document.
func (s *Server) Schemas() huma.Registry { return s.huma.OpenAPI().Components.Schemas }
