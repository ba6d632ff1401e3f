package api

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"tranche/internal/fault"
	"tranche/internal/identity"
)

// Body limits (decisions 1.4).
const (
	bodyMaxDefault      = 1 << 20
	bodyMaxExecute      = 5 << 20
	bodyMaxExecuteBatch = 20 << 20
)

// The rate limits that operations count against (section 8 of the interface
// specification, decisions 1.12).
const (
	management     = identity.LimitManagement
	single         = identity.LimitSingle
	batch          = identity.LimitBatch
	polling        = identity.LimitPolling
	authorizations = identity.LimitAuthorizations
)

// operation declares everything about an endpoint that is not its code.
type operation struct {
	id          string // camelCase, the name a generated client gives it
	method      string
	path        string
	tag         string // resource it is listed under
	summary     string
	description string // CommonMark; says which members are extensions

	// scope is what the caller's token must have; empty makes it public.
	scope    identity.Scope
	category identity.LimitCategory
	bodyMax  int64 // bytes; 0 means bodyMaxDefault

	// status is that of success; 0 means 200 with a body and 204 without.
	status int
	// requestExample and responseExample are JSON.
	requestExample  string
	responseExample string
	// bodySchema declares the body of a handler that takes body(ctx) instead
	// of a Body field.
	bodySchema *huma.Schema
	// inspect finds faults of the body beyond its schema; they are reported
	// together with those of the schema, whose fields it cannot repeat. A body that
	// is no object has no members, and is not inspected.
	inspect func(members map[string]any) []fault.Detail
	// idempotent, unless zero, has the operation take Idempotency-Key.
	idempotent idempotence
	// alternatives are further successes by status, 202 beside 200.
	alternatives map[int]alternative
	// errors are the statuses of failure beyond those every operation has.
	errors []int
}

// alternative documents a second form of success.
type alternative struct {
	description string
	body        any // a value of the answer's type; nil for no body
	example     string
}

// operationKey finds the operation in the metadata of Huma's.
const operationKey = "operation"

// declared returns what was declared for Huma's operation.
func declared(op *huma.Operation) *operation {
	o, ok := op.Metadata[operationKey].(*operation)
	if !ok {
		return &operation{}
	}
	return o
}

// register adds an endpoint: its route and its place in the document.
// Whatever error the handler returns is answered by the contract of problem.go.
func register[I, O any](s *Server, op operation, handler func(context.Context, *I) (*O, error)) {
	h := s.humaOperation(&op)
	h.SkipValidateBody = true // readBody has done it
	h.MaxBodyBytes = -1       // likewise
	h.BodyReadTimeout = -1    // lifts the deadline that readBody set, for handlers that take long
	huma.Register(s.huma, h, func(ctx context.Context, in *I) (*O, error) {
		releaseRead, err := s.acquireRead(ctx, &op)
		if err != nil {
			return nil, s.problem(ctx, err)
		}
		defer releaseRead()
		out, err := handler(ctx, in)
		if err != nil {
			return nil, s.errorAnswer(ctx, &op, err)
		}
		return out, nil
	})
	s.completeDocument(&op)
}

// registerRaw adds an endpoint that reads and writes by itself: streams, files.
// The handler's error is answered by the contract of problem.go. What Huma
// would derive from types, h declares: parameters, body and successes.
//
// Its caller is authorised by a signed address; tokens are for operations of
// register.
func registerRaw(s *Server, op operation, h huma.Operation, handler func(http.ResponseWriter, *http.Request) error) {
	if op.scope != "" {
		panic("api: " + op.id + " declares a scope that nothing would check")
	}
	own := s.humaOperation(&op)
	own.Parameters, own.RequestBody = h.Parameters, h.RequestBody
	maps.Copy(own.Responses, h.Responses)
	s.huma.OpenAPI().AddOperation(&own)
	s.completeDocument(&op)
	s.router.MethodFunc(op.method, op.path, func(w http.ResponseWriter, r *http.Request) {
		if err := handler(w, r); err != nil {
			s.writeProblem(w, s.problem(r.Context(), err))
		}
	})
}

// humaOperation returns Huma's form of an operation.
func (s *Server) humaOperation(op *operation) huma.Operation {
	h := huma.Operation{
		OperationID:   op.id,
		Method:        op.method,
		Path:          op.path,
		Tags:          []string{op.tag},
		Summary:       op.summary,
		Description:   op.description,
		DefaultStatus: op.status,
		Metadata:      map[string]any{operationKey: op},
		Responses:     map[string]*huma.Response{},
		Security:      []map[string][]string{},
		Extensions:    map[string]any{},
	}
	if op.scope != "" {
		h.Security = []map[string][]string{{bearerScheme: {string(op.scope)}}}
	}
	if op.category != "" {
		h.Extensions["x-rate-limit-category"] = string(op.category)
	}
	if op.bodySchema != nil {
		h.RequestBody = &huma.RequestBody{
			Required: true,
			Content:  map[string]*huma.MediaType{jsonType: {Schema: op.bodySchema}},
		}
	}
	if op.idempotent != (idempotence{}) {
		documentIdempotency(&h)
	}
	for status, other := range op.alternatives {
		response := &huma.Response{Description: other.description}
		if other.body != nil {
			schema := s.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(other.body), true, "")
			response.Content = map[string]*huma.MediaType{jsonType: {Schema: schema, Example: json.RawMessage(other.example)}}
		}
		h.Responses[strconv.Itoa(status)] = response
	}
	for _, status := range op.statuses() {
		h.Responses[strconv.Itoa(status)] = &huma.Response{Ref: "#/components/responses/" + responseName(status)}
	}
	return h
}

// statuses are the failures an operation may answer with.
func (op *operation) statuses() []int {
	all := []int{http.StatusBadRequest, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable}
	if op.scope != "" {
		all = append(all, http.StatusUnauthorized, http.StatusForbidden)
	}
	if op.method == http.MethodPost || op.method == http.MethodPut || op.method == http.MethodPatch {
		all = append(all, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if op.idempotent != (idempotence{}) {
		all = append(all, answerOf(op.idempotent.mismatch).status, answerOf(op.idempotent.inFlight).status)
	}
	all = append(all, op.errors...)
	slices.Sort(all)
	return slices.Compact(all)
}

// problem returns the answer for an error: a *Problem as it is, anything else
// by its fault kind. Unexpected errors are logged with their cause.
func (s *Server) problem(ctx context.Context, err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	return s.newProblem(ctx, err)
}
