package api

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

const documentDescription = `Tenants define workflows (graphs of tasks) and run them for one borrower or for a million.

Conventions:

- Bodies are JSON (UTF-8); members and query parameters that an operation does not have are refused, and so are duplicate names. An optional member that is null counts as absent.
- Times are RFC 3339 in UTC with milliseconds. Numbers that are passed on keep their exact decimal text. Where a body asks for an integer, 60.0 is one.
- Every answer carries ` + "`X-Request-Id`" + `: yours, if you send one of 1 to 128 characters from ` + "`A-Za-z0-9._-`" + `, else a new one.
- Every error has the body of the schema Problem, whatever answers it. Only what is not a request by HTTP (no Host, a malformed or too large header, an unknown Expect) is answered 400, 417, 431, 501 or 505 without one, and the connection is closed.
- Under the same version in the path, answers may gain members and their enumerations values, and requests may gain optional members and parameters; nothing is removed and nothing means something else.
- Lists page by ` + "`page`" + ` and ` + "`per-page`" + `; ` + "`cursor`" + ` instead of ` + "`page`" + ` walks long lists steadily.
- **[ext]** marks what goes beyond the original interface; it is optional for the caller.`

// humaConfig is what Huma is told about the service as a whole. Its own
// document and documents page are off: they are served by documentRoutes.
func humaConfig() huma.Config {
	config := huma.DefaultConfig("Tranche", "1")
	config.CreateHooks = nil // no $schema members
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	config.Formats = map[string]huma.Format{jsonType: huma.DefaultJSONFormat}
	config.Info.Description = documentDescription
	config.Servers = []*huma.Server{{URL: "/", Description: "This service"}}
	config.Tags = []*huma.Tag{
		{Name: "Identity", Description: "Tokens and the keys that sign them."},
		{Name: "Workflows", Description: "Definitions: drafted, published, archived."},
		{Name: "Executions", Description: "Running a workflow for one subject."},
		{Name: "Batches", Description: "Running a workflow for many subjects."},
		{Name: "Schedules", Description: "Running a workflow at recurring times."},
		{Name: "Authorizations", Description: "Consents signed by one-time password, their evidence, and the templates of messages."},
		{Name: "Secrets", Description: "Values that tasks send and nobody reads back."},
		{Name: "Stores", Description: "Uploads and packages of files."},
		{Name: "Service", Description: "The state of the service itself."},
	}
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		bearerScheme: {Type: "http", Scheme: "bearer", BearerFormat: "JWT", Description: scopesDescription()},
	}
	config.Components.Headers = map[string]*huma.Header{
		"RequestId":           {Description: "Identifies the request; repeated in errors.", Schema: &huma.Schema{Type: huma.TypeString}},
		"RetryAfter":          {Description: "Whole seconds after which to try again.", Schema: &huma.Schema{Type: huma.TypeInteger}},
		"IdempotencyReplayed": {Description: "true where the answer is that of an earlier request under the same Idempotency-Key.", Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"true"}}},
		"Allow":               {Description: "The methods that the path has.", Schema: &huma.Schema{Type: huma.TypeString}},
	}
	maps.Copy(config.Components.Headers, limitHeaders())
	config.Components.Responses = problemResponses()
	return config
}

func scopesDescription() string {
	var text strings.Builder
	text.WriteString("An access token of POST /identity/resources/auth/v1/api-token: a JWT by RFC 9068, handled by RFC8725. Its scopes are those of the client:\n")
	for _, scope := range identity.Scopes() {
		text.WriteString("\n- `" + string(scope) + "`")
	}
	return text.String()
}

// problemSample is what the document says about one status of failure.
type problemSample struct {
	status               int
	name, description    string
	code, message        string
	detail, why, subCode string // of the example; may be empty
}

func problemSamples() []problemSample {
	return []problemSample{
		{http.StatusBadRequest, "BadRequest", "The body or a parameter is malformed; details name every fault.", "VALIDATION_ERROR", "the request is invalid", "name", "is required", "MISSING_REQUIRED_FIELD"},
		{http.StatusUnauthorized, "Unauthorized", "The bearer token is missing or invalid.", "UNAUTHORIZED", "a bearer token is required", "", "", ""},
		{http.StatusForbidden, "Forbidden", "The token lacks a scope, which the message names.", "FORBIDDEN", "the token lacks the scope workflows:write", "", "", ""},
		{http.StatusNotFound, "NotFound", "There is no such thing, or it is another tenant's.", "NOT_FOUND", "there is no such workflow", "", "", ""},
		{http.StatusRequestTimeout, "RequestTimeout", "The body took too long to arrive.", "REQUEST_TIMEOUT", "the body took longer than 30 s to arrive", "", "", ""},
		{http.StatusConflict, "Conflict", "The state of the resource forbids it.", "CONFLICT", "only a draft can be published; this workflow is active", "", "", "INVALID_WORKFLOW_STATUS"},
		{http.StatusPreconditionFailed, "PreconditionFailed", "If-Match names an older version of the resource.", "PRECONDITION_FAILED", "the workflow has changed since the version that If-Match names", "", "", ""},
		{http.StatusRequestEntityTooLarge, "PayloadTooLarge", "The body is larger than the operation allows.", "PAYLOAD_TOO_LARGE", "the body is larger than 1048576 bytes", "", "", ""},
		{http.StatusUnsupportedMediaType, "UnsupportedMediaType", "The body is not of a type that the operation takes.", "UNSUPPORTED_MEDIA_TYPE", "the body must be application/json in UTF-8", "", "", ""},
		{http.StatusRequestedRangeNotSatisfiable, "RangeNotSatisfiable", "The file does not have the part that Range names.", "RANGE_NOT_SATISFIABLE", "the file does not have the part that Range names", "", "", ""},
		{http.StatusUnprocessableEntity, "UnprocessableEntity", "The request is well-formed but cannot be processed.", "UNPROCESSABLE_ENTITY", "the input does not match the workflow's schema", "amount", "must be number, but is string", "INPUT_SCHEMA_MISMATCH"},
		{http.StatusTooManyRequests, "TooManyRequests", "The rate limit of the tenant is used up; a request after Retry-After finds room.", "RATE_LIMITED", "more than 50 requests of this kind in 60 s", "", "", ""},
		{http.StatusInternalServerError, "InternalServerError", "An unexpected error; the log has its cause under the request id.", "INTERNAL_ERROR", "an unexpected error occurred", "", "", ""},
		{http.StatusServiceUnavailable, "ServiceUnavailable", "The service is temporarily unavailable.", "SERVICE_UNAVAILABLE", "the database cannot be reached", "", "", ""},
	}
}

// responseName is the component that documents a status of failure.
func responseName(status int) string {
	for _, sample := range problemSamples() {
		if sample.status == status {
			return sample.name
		}
	}
	panic(fmt.Sprintf("api: status %d has no documented problem", status))
}

func problemResponses() map[string]*huma.Response {
	responses := map[string]*huma.Response{}
	for _, sample := range problemSamples() {
		example := Problem{
			Code: sample.code, Message: sample.message, ErrorSubCode: sample.subCode,
			Details: []ProblemDetail{}, RequestID: "0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11",
		}
		if sample.detail != "" {
			example.Details = append(example.Details, ProblemDetail{Field: sample.detail, Message: sample.why})
		}
		response := &huma.Response{
			Description: sample.description,
			Headers:     requestIDHeaders(),
			Content: map[string]*huma.MediaType{jsonType: {
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

// completeDocument adds to a registered operation what Huma does not derive:
// examples and the headers of every answer.
func (s *Server) completeDocument(op *operation) {
	h := documented(s.huma.OpenAPI(), op.method, op.path)
	delete(h.Responses, "default")
	if h.RequestBody != nil && op.requestExample != "" {
		h.RequestBody.Content[jsonType].Example = json.RawMessage(op.requestExample)
	}
	for status, response := range h.Responses {
		if response.Ref != "" {
			continue
		}
		if response.Headers == nil {
			response.Headers = map[string]*huma.Header{}
		}
		response.Headers[requestIDHeader] = &huma.Header{Ref: "#/components/headers/RequestId"}
		if op.scope != "" && op.category != "" {
			documentLimit(response)
		}
		if op.idempotent != (idempotence{}) {
			response.Headers[idempotencyReplayedHeader] = &huma.Header{Ref: "#/components/headers/IdempotencyReplayed"}
		}
		content := response.Content[jsonType]
		if content != nil && content.Example == nil && op.responseExample != "" && status == strconv.Itoa(h.DefaultStatus) {
			content.Example = json.RawMessage(op.responseExample)
		}
	}
}

// documented returns the operation of a route in the document.
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

// writeDocument writes the document, of all that New has registered.
func (s *Server) writeDocument() []byte {
	document, err := json.MarshalIndent(s.huma.OpenAPI(), "", "  ")
	if err != nil {
		panic(fmt.Sprintf("api: the OpenAPI document cannot be written: %v", err))
	}
	return append(document, '\n')
}

// documentRoutes serves the document and the page that shows it.
func (s *Server) documentRoutes() {
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
		w.Header().Set("Content-Type", jsonType)
		_, _ = w.Write(s.Document())
	})
	s.docsRoutes()
}

// hasETag reports whether an If-None-Match header names etag, by the weak
// comparison that RFC 9110, 13.1.2 wants: a proxy that compresses weakens it.
func hasETag(ifNoneMatch, etag string) bool {
	for tag := range strings.SplitSeq(ifNoneMatch, ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
			return true
		}
	}
	return false
}
