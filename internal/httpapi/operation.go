package httpapi

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"tranche/internal/fault"
	"tranche/internal/identity"
)

// BodyMaxDefault is the default body limit in bytes (contract 1.4).
const BodyMaxDefault = 1 << 20

// Operation declares everything about an endpoint except its handler.
type Operation struct {
	ID          string // camelCase; generated clients use it as a method name
	Method      string
	Path        string
	Tag         string // the group that the document lists it in
	Summary     string
	Description string // CommonMark

	// Scope is the scope that the token must have. An empty scope makes the
	// operation public.
	Scope    identity.Scope
	Category identity.LimitCategory // the rate limit that it counts against
	BodyMax  int64                  // bytes; 0 means BodyMaxDefault

	// Status is the status of success. 0 means 200 with a body and 204 without.
	Status int
	// ContentType is the type of the answer; empty means JSON.
	ContentType string
	// RequestExample and ResponseExample are JSON.
	RequestExample  string
	ResponseExample string
	// BodySchema declares the body if the handler uses Body(ctx) instead of a
	// Body field.
	BodySchema *huma.Schema
	// Inspect reports errors of the body that its schema cannot express. They are
	// answered together with those of the schema. It is called for objects only.
	Inspect func(members map[string]any) []fault.Detail
	// Alternatives are further successes by status, such as 202 in addition to 200.
	Alternatives map[int]Alternative
	// Errors are the statuses of failure in addition to those of every operation.
	Errors []int

	// conflicts is set by RegisterIdempotent.
	conflicts KeyConflicts
}

// Alternative documents a further success.
type Alternative struct {
	Description string
	Body        any // a value of the answer's type
	Example     string
}

// operationKey is the key of the Operation in the metadata of Huma's operation.
const operationKey = "operation"

// declared returns the Operation of Huma's operation.
func declared(op *huma.Operation) *Operation {
	o, ok := op.Metadata[operationKey].(*Operation)
	if !ok {
		return &Operation{}
	}
	return o
}

// Register adds an endpoint to the router and to the document. Errors of the
// handler become problems.
func Register[I, O any](s *Server, op Operation, handler func(context.Context, *I) (*O, error)) {
	register(s, &op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if err != nil {
			return nil, s.Problem(ctx, err)
		}
		return out, nil
	})
}

// register adds an endpoint whose handler returns problems as errors.
func register[I, O any](s *Server, op *Operation, handler func(context.Context, *I) (*O, error)) {
	h := s.humaOperation(op)
	h.SkipValidateBody = true // readBody has validated it
	h.MaxBodyBytes = -1       // readBody has limited it
	h.BodyReadTimeout = -1    // removes the deadline of readBody, because handlers may take longer
	huma.Register(s.huma, h, func(ctx context.Context, in *I) (*O, error) {
		release, err := s.acquireRead(ctx, op)
		if err != nil {
			return nil, s.Problem(ctx, err)
		}
		defer release()
		return handler(ctx, in)
	})
	s.completeDocument(op)
}

// RegisterRaw adds an endpoint that reads the request and writes the answer
// itself, such as the transfer of a file. Errors of the handler become problems.
// The parameters, body and successes of h go into the document.
//
// The operation must be public: a raw endpoint verifies a signed address
// instead of a token.
func RegisterRaw(s *Server, op Operation, h huma.Operation, handler func(http.ResponseWriter, *http.Request) error) {
	if op.Scope != "" {
		panic("httpapi: the raw operation " + op.ID + " declares a scope, which nothing would check")
	}
	own := s.humaOperation(&op)
	own.Parameters, own.RequestBody = h.Parameters, h.RequestBody
	maps.Copy(own.Responses, h.Responses)
	s.huma.OpenAPI().AddOperation(&own)
	s.completeDocument(&op)
	s.router.MethodFunc(op.Method, op.Path, func(w http.ResponseWriter, r *http.Request) {
		if err := handler(w, r); err != nil {
			s.writeProblem(w, s.Problem(r.Context(), err))
		}
	})
}

// humaOperation returns Huma's form of an operation.
func (s *Server) humaOperation(op *Operation) huma.Operation {
	h := huma.Operation{
		OperationID:   op.ID,
		Method:        op.Method,
		Path:          op.Path,
		Tags:          []string{op.Tag},
		Summary:       op.Summary,
		Description:   op.Description,
		DefaultStatus: op.Status,
		Metadata:      map[string]any{operationKey: op},
		Responses:     map[string]*huma.Response{},
		Security:      []map[string][]string{},
		Extensions:    map[string]any{},
	}
	if op.Scope != "" {
		h.Security = []map[string][]string{{bearerScheme: {string(op.Scope)}}}
	}
	if op.Category != "" {
		h.Extensions["x-rate-limit-category"] = string(op.Category)
	}
	if op.BodySchema != nil {
		h.RequestBody = &huma.RequestBody{
			Required: true,
			Content:  map[string]*huma.MediaType{ContentTypeJSON: {Schema: op.BodySchema}},
		}
	}
	if op.isIdempotent() {
		documentIdempotency(&h)
	}
	for status, other := range op.Alternatives {
		schema := s.Schemas().Schema(reflect.TypeOf(other.Body), true, "")
		h.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: other.Description,
			Content:     map[string]*huma.MediaType{ContentTypeJSON: {Schema: schema, Example: json.RawMessage(other.Example)}},
		}
	}
	for _, status := range op.failures() {
		h.Responses[strconv.Itoa(status)] = &huma.Response{Ref: "#/components/responses/" + responseName(status)}
	}
	return h
}

// failures returns the statuses of failure that an operation may answer with.
func (op *Operation) failures() []int {
	all := []int{http.StatusBadRequest, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable}
	if op.Scope != "" {
		all = append(all, http.StatusUnauthorized, http.StatusForbidden)
	}
	if op.Method == http.MethodPost || op.Method == http.MethodPut || op.Method == http.MethodPatch {
		all = append(all, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if op.isIdempotent() {
		all = append(all, answerOf(op.conflicts.OtherRequest).status, answerOf(op.conflicts.InProgress).status)
	}
	all = append(all, op.Errors...)
	slices.Sort(all)
	return slices.Compact(all)
}

func (op *Operation) isIdempotent() bool { return op.conflicts != (KeyConflicts{}) }
