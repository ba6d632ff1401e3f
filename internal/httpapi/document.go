package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"tranche/internal/identity"
)

const (
	bearerScheme = "bearer"
	documentPath = "/openapi.json"
	docsPath     = "/docs"
)

// About describes the service in the OpenAPI document.
type About struct {
	Title, Version string
	Description    string // CommonMark
	Tags           []*huma.Tag
}

// humaConfig returns Huma's configuration. Huma's own document and documentation page
// are off; ServeDocument serves them.
func humaConfig(about About) huma.Config {
	config := huma.DefaultConfig(about.Title, about.Version)
	config.CreateHooks = nil // no $schema members
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	config.Formats = map[string]huma.Format{ContentTypeJSON: huma.DefaultJSONFormat}
	config.Info.Description = about.Description
	config.Servers = []*huma.Server{{URL: "/", Description: "This service"}}
	config.Tags = about.Tags
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		bearerScheme: {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: scopesDescription()},
	}
	config.Components.Headers = map[string]*huma.Header{
		"RequestId":           {Description: "The id of the request. Errors repeat it.", Schema: &huma.Schema{Type: huma.TypeString}},
		"RetryAfter":          {Description: "The number of seconds to wait before you retry.", Schema: &huma.Schema{Type: huma.TypeInteger}},
		"IdempotencyReplayed": {Description: "`true` if this is the response to an earlier request with the same `Idempotency-Key`.", Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{Replayed}}},
		"Allow":               {Description: "The methods that the path supports.", Schema: &huma.Schema{Type: huma.TypeString}},
	}
	maps.Copy(config.Components.Headers, limitHeaders())
	config.Components.Responses = problemResponses()
	return config
}

func scopesDescription() string {
	var text strings.Builder
	text.WriteString("An access token from `POST /identity/resources/auth/v1/api-token`. It is a JWT (RFC 9068), validated as RFC8725 recommends. Its scopes are those of the client:\n")
	for _, scope := range identity.Scopes() {
		text.WriteString("\n- `" + string(scope) + "`")
	}
	return text.String()
}

// problemSample documents one status of failure with an example.
type problemSample struct {
	status                     int
	name, description          string
	code, message, subCode     string
	detailField, detailMessage string
}

func problemSamples() []problemSample {
	return []problemSample{
		{http.StatusBadRequest, "BadRequest", "The body or a parameter is invalid. `details` lists every error.", "VALIDATION_ERROR", "the request is invalid", "MISSING_REQUIRED_FIELD", "name", "is required"},
		{http.StatusUnauthorized, "Unauthorized", "The bearer token is missing or invalid.", "UNAUTHORIZED", "the request has no bearer token", "", "", ""},
		{http.StatusForbidden, "Forbidden", "The token does not have the required scope. The message names the scope.", "FORBIDDEN", "the token does not have the scope workflows:write", "", "", ""},
		{http.StatusNotFound, "NotFound", "The resource does not exist, or it belongs to another tenant.", "NOT_FOUND", "there is no such workflow", "", "", ""},
		{http.StatusRequestTimeout, "RequestTimeout", "The body took too long to arrive.", "REQUEST_TIMEOUT", "the body took longer than 30 s to arrive", "", "", ""},
		{http.StatusConflict, "Conflict", "The state of the resource does not allow the request.", "CONFLICT", "only a draft can be published; this workflow is active", "INVALID_WORKFLOW_STATUS", "", ""},
		{http.StatusPreconditionFailed, "PreconditionFailed", "`If-Match` names an older version of the resource.", "PRECONDITION_FAILED", "the workflow has changed since the version that If-Match names", "", "", ""},
		{http.StatusRequestEntityTooLarge, "PayloadTooLarge", "The body is larger than the operation accepts.", "PAYLOAD_TOO_LARGE", "the body is larger than 1048576 bytes", "", "", ""},
		{http.StatusUnsupportedMediaType, "UnsupportedMediaType", "The operation does not accept the type of the body.", "UNSUPPORTED_MEDIA_TYPE", "the Content-Type must be application/json in UTF-8", "", "", ""},
		{http.StatusRequestedRangeNotSatisfiable, "RangeNotSatisfiable", "The file does not have the range of bytes that `Range` names.", "RANGE_NOT_SATISFIABLE", "the file does not have the range of bytes that Range names", "", "", ""},
		{http.StatusUnprocessableEntity, "UnprocessableEntity", "The request is well-formed but cannot be processed.", "UNPROCESSABLE_ENTITY", "the input does not match the workflow's inputSchema", "INPUT_SCHEMA_MISMATCH", "amount", "must be number, but is string"},
		{http.StatusTooManyRequests, "TooManyRequests", "The tenant's rate limit is exceeded. Retry after the time in `Retry-After`.", "RATE_LIMITED", "more than 50 requests of this kind in 60 s", "", "", ""},
		{http.StatusInternalServerError, "InternalServerError", "An unexpected error. The service's log has the cause under the request id.", "INTERNAL_ERROR", "an unexpected error occurred", "", "", ""},
		{http.StatusServiceUnavailable, "ServiceUnavailable", "The service is temporarily unavailable.", "SERVICE_UNAVAILABLE", "the database cannot be reached", "", "", ""},
	}
}

// responseName returns the component that documents a status of failure.
func responseName(status int) string {
	for _, sample := range problemSamples() {
		if sample.status == status {
			return sample.name
		}
	}
	panic(fmt.Sprintf("httpapi: status %d has no documented problem", status))
}

func problemResponses() map[string]*huma.Response {
	responses := map[string]*huma.Response{}
	for _, sample := range problemSamples() {
		example := Problem{
			Code: sample.code, Message: sample.message, ErrorSubCode: sample.subCode,
			Details: []ProblemDetail{}, RequestID: "0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11",
		}
		if sample.detailField != "" {
			example.Details = append(example.Details, ProblemDetail{Field: sample.detailField, Message: sample.detailMessage})
		}
		response := &huma.Response{
			Description: sample.description,
			Headers:     requestIDHeaders(),
			Content: map[string]*huma.MediaType{ContentTypeJSON: {
				Schema:  &huma.Schema{Ref: "#/components/schemas/Problem"},
				Example: example,
			}},
		}
		if sample.status == http.StatusTooManyRequests || sample.status == http.StatusServiceUnavailable {
			response.Headers["Retry-After"] = &huma.Header{Ref: "#/components/headers/RetryAfter"}
		}
		if sample.status == http.StatusTooManyRequests {
			documentLimit(response)
		}
		responses[sample.name] = response
	}
	return responses
}

func requestIDHeaders() map[string]*huma.Header {
	return map[string]*huma.Header{requestIDHeader: {Ref: "#/components/headers/RequestId"}}
}

// completeDocument adds examples and the headers of every response to a registered
// operation. Huma does not derive them.
func (s *Server) completeDocument(op *Operation) {
	h := documented(s.huma.OpenAPI(), op.Method, op.Path)
	delete(h.Responses, "default")
	if h.RequestBody != nil && op.RequestExample != "" {
		h.RequestBody.Content[ContentTypeJSON].Example = json.RawMessage(op.RequestExample)
	}
	for status, response := range h.Responses {
		if response.Ref != "" {
			continue
		}
		if response.Headers == nil {
			response.Headers = map[string]*huma.Header{}
		}
		response.Headers[requestIDHeader] = &huma.Header{Ref: "#/components/headers/RequestId"}
		if op.Scope != "" && op.Category != "" {
			documentLimit(response)
		}
		if op.isIdempotent() {
			response.Headers[idempotencyReplayedHeader] = &huma.Header{Ref: "#/components/headers/IdempotencyReplayed"}
		}
		content := response.Content[ContentTypeJSON]
		if content != nil && content.Example == nil && op.ResponseExample != "" && status == strconv.Itoa(h.DefaultStatus) {
			content.Example = json.RawMessage(op.ResponseExample)
		}
		if op.ContentType != "" && status == strconv.Itoa(h.DefaultStatus) {
			response.Content = map[string]*huma.MediaType{op.ContentType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}
			delete(response.Headers, "Content-Type") // the content names it
		}
	}
}

// documented returns the operation of a route.
func documented(document *huma.OpenAPI, method, path string) *huma.Operation {
	item := document.Paths[path]
	switch method {
	case http.MethodGet:
		return item.Get
	case http.MethodPost:
		return item.Post
	case http.MethodPut:
		return item.Put
	case http.MethodPatch:
		return item.Patch
	default:
		return item.Delete
	}
}

func (s *Server) encodeDocument() []byte {
	document, err := json.MarshalIndent(s.huma.OpenAPI(), "", "  ")
	if err != nil {
		panic(fmt.Sprintf("httpapi: encode the OpenAPI document: %v", err))
	}
	return append(document, '\n')
}

// ServeDocument serves the document at /openapi.json and the page that shows it at /docs.
func (s *Server) ServeDocument() {
	tag := sync.OnceValue(func() string {
		sum := sha256.Sum256(s.Document())
		return `"` + hex.EncodeToString(sum[:16]) + `"`
	})
	s.router.Get(documentPath, func(w http.ResponseWriter, r *http.Request) {
		etag := tag()
		w.Header().Set("ETag", etag)
		w.Header().Set("Cache-Control", "no-cache")
		if hasETag(r.Header.Get("If-None-Match"), etag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Type", ContentTypeJSON)
		_, _ = w.Write(s.Document())
	})
	s.serveDocs()
}

// hasETag reports whether an If-None-Match header contains etag. The comparison is weak
// (RFC 9110, 13.1.2), because a proxy that compresses makes the tag weak.
func hasETag(ifNoneMatch, etag string) bool {
	for tag := range strings.SplitSeq(ifNoneMatch, ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
			return true
		}
	}
	return false
}
