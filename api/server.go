// Package api declares the operations of the HTTP API, one file for each resource.
// A handler decodes the request, checks access, calls one function of the domain
// and encodes the answer. Package api has no rules of the domain and must not know
// jobs/workers. Package internal/httpapi does everything that is not about a
// resource.
//
// # How to add an endpoint
//
//  1. Find or create the file of the resource (workflows.go) and its function
//     `func thingRoutes(s *Server)`. List that function in routes below.
//  2. Declare the input and output types of the endpoint. Fields of the input are
//     tagged path, query or header; `Body` is the JSON body. The output has `Body`,
//     header fields and, if the status of success varies, `Status int`. Every field
//     has a doc tag and, if it helps, an example tag. Values that must keep their
//     exact text are JSON; times are Timestamp.
//  3. Call httpapi.Register(s.http, httpapi.Operation{...}, handler). The Operation has
//     the scope, rate limit category, body limit, status of success, examples and the
//     statuses of its own errors.
//  4. The handler gets the caller from httpapi.Principal(ctx), calls one function of
//     the domain and returns its error unchanged: httpapi maps errors to HTTP. A
//     handler that works on an execution calls httpapi.NoteExecution, so that the log
//     lines of the request have its id.
//  5. Run `make openapi` and write a test with internal/apitest that covers errors and
//     successes. TestEveryOperationIsDocumented lists missing documentation.
//
// httpapi validates a body against the schema of its type before the handler runs.
// Operation.Inspect checks rules that a schema cannot express, so that one response
// reports all errors of a body. A handler that needs the exact value of the body
// declares Operation.BodySchema and calls httpapi.RequestBody(ctx). A handler that
// streams is registered with httpapi.RegisterRaw. An operation that takes an
// Idempotency-Key is registered with httpapi.RegisterIdempotent. Lists embed
// httpapi.PageInput and call httpapi.Paginate.
package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	batches "tranche/internal/batch"
	"tranche/internal/catalog"
	"tranche/internal/consent"
	"tranche/internal/execution"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
	"tranche/internal/schedule"
	"tranche/internal/secret"
	"tranche/internal/storage"
)

// Config holds what the operations work with. A field may be nil only if no operation
// that uses it is called.
type Config struct {
	HTTP httpapi.Config
	// Ready holds the checks of /readyz by name. An error means that the part is not
	// ready.
	Ready map[string]func(context.Context) error
	// HealthOnly registers the health checks only, for processes that do background
	// work only.
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

	// Pool is used by handlers that call queries directly.
	Pool *pgxpool.Pool
}

// Server answers the requests of the API.
type Server struct {
	config Config
	http   *httpapi.Server
}

// New returns a server with all operations.
func New(config Config) *Server {
	config.HTTP.SecretPath = execution.CallbackPath
	s := &Server{config: config, http: httpapi.New(config.HTTP, about())}
	healthRoutes(s)
	if !config.HealthOnly {
		s.routes()
	}
	return s
}

// routes registers all operations except the health checks.
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
	s.http.ServeDocument()
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.http.ServeHTTP(w, r) }

// Document returns the OpenAPI document of the service.
func (s *Server) Document() []byte { return s.http.Document() }

const description = `Tenants define workflows, which are graphs of tasks, and run them for one borrower or for millions.

Conventions:

- Bodies are JSON in UTF-8. Unknown members, unknown query parameters and duplicate names are rejected. An optional member that is ` + "`null`" + ` counts as absent.
- Times are RFC 3339 in UTC with milliseconds. Numbers in your data keep their exact decimal text. Where a body needs an integer, ` + "`60.0`" + ` is one.
- Every response has an ` + "`X-Request-Id`" + `. It is the id that you send if that has 1 to 128 characters from ` + "`A-Za-z0-9._-`" + `, otherwise a new one.
- Every error response has the body of the schema ` + "`Problem`" + `. Requests that are not valid HTTP (no Host, malformed or too large headers, an unknown Expect) get 400, 417, 431, 501 or 505 with an empty body, and the connection is closed.
- Within the version of the path, responses may gain members and enum values, and requests may gain optional members and parameters. Nothing is removed, and nothing changes its meaning.
- Lists have the parameters ` + "`page`" + ` and ` + "`per-page`" + `. Use ` + "`cursor`" + ` instead of ` + "`page`" + ` to read long lists without gaps or duplicates.
- **[ext]** marks additions to the original interface. You do not have to use them.`

// about describes the API in the OpenAPI document.
func about() httpapi.About {
	return httpapi.About{
		Title: "Tranche", Version: "1", Description: description,
		Tags: []*huma.Tag{
			{Name: "Identity", Description: "Access tokens and the keys that sign them."},
			{Name: "Workflows", Description: "Workflow definitions: drafts, active versions and archived versions."},
			{Name: "Executions", Description: "Runs of a workflow for one borrower."},
			{Name: "Batches", Description: "Runs of a workflow for many borrowers."},
			{Name: "Schedules", Description: "Runs of a workflow at recurring times."},
			{Name: "Authorizations", Description: "Consents that are signed with a one-time password, their evidence, and message templates."},
			{Name: "Secrets", Description: "Credentials that tasks send to other services. They cannot be read back."},
			{Name: "Stores", Description: "Uploaded files and packages of files."},
			{Name: "Service", Description: "The health of the service."},
		},
	}
}
