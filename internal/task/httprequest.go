package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/internal/egress"
	"tranche/internal/expression"
	"tranche/internal/workflow"
)

// httpRequestType calls a service outside.
type httpRequestType struct {
	http    *egress.Client
	log     *slog.Logger
	secrets RevealSecret
	tokens  *tokenCache
}

// httpRequest is a compiled http-request.
type httpRequest struct {
	httpRequestType
	method  string
	url     address
	query   *expression.Tree
	headers []requestHeader
	// secretive says that a header's value is a secret.
	secretive bool
	auth      *requestAuth
	body      requestBody
	success   statusSet
	bytesMax  int
	redirects int
	timeout   time.Duration
}

type requestHeader struct {
	name   string
	value  *expression.Tree
	secret string // names the secret that is the value; empty if value is
}

const (
	headerIdempotencyKey = "Idempotency-Key"
	headerContentType    = "Content-Type"
	headerUserAgent      = "User-Agent"
	headerRetryAfter     = "Retry-After"
)

func (t httpRequestType) Compile(c *workflow.ConfigReader) workflow.Program {
	r := &httpRequest{httpRequestType: t}
	c.Require("url")
	r.method = c.Choice("method", http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions)
	if r.url.template = c.Template("url"); r.url.template != nil {
		if r.url.holdsCredential() {
			c.Refuse("url", mustBeSecret)
		}
		if err := r.url.checkLiteral(); err != nil {
			c.Fault("url", "%s", err)
		}
	}
	r.query = readQuery(c)
	refuseCredentials(c, "query", "", c.Value("query"))
	r.headers = readHeaders(c)
	r.secretive = slices.ContainsFunc(r.headers, func(h requestHeader) bool { return h.secret != "" })
	if r.auth = readAuth(c); r.auth != nil && r.auth.kind != authAPIKey && slices.ContainsFunc(r.headers, func(h requestHeader) bool { return h.name == headerAuthorization }) {
		c.Fault("headers.Authorization", "must not be set, because auth sets this header")
	}
	r.body = readBody(c)
	r.redirects = c.Int("followRedirects", 0, 0, egress.RedirectsMax)
	r.success = readSuccessStatus(c)
	r.bytesMax = c.Int("maxResponseBytes", egress.ResponseBytesMax, 1, egress.ResponseBytesMax)
	// timeoutMs is every task's; here it also bounds the request, which waits
	// at most so long if it is absent.
	c.TimeoutMax(egress.TimeoutMax)
	r.timeout = c.Milliseconds("timeoutMs", egress.TimeoutDefault, 1, egress.TimeoutMax)
	c.DataSource(c.Text("source"))
	c.RetryByDefault(workflow.RetryPolicy{
		MaxAttempts: 3, InitialDelay: 500 * time.Millisecond, Factor: 2, MaxDelay: 30 * time.Second, Jitter: 0.2,
	})
	return r
}

func readQuery(c *workflow.ConfigReader) *expression.Tree {
	object := c.Object("query")
	if object == nil {
		return nil
	}
	for _, name := range object.Members() {
		switch v := object.Value(name).(type) {
		case map[string]any:
			object.Fault(name, "must be a text, number, boolean or an array of these")
		case []any:
			for i, item := range v {
				if kindOf(item) == kindOther {
					object.Fault(fmt.Sprintf("%s[%d]", name, i), "must be a text, number or boolean")
				}
			}
		}
	}
	return c.Tree("query")
}

func readHeaders(c *workflow.ConfigReader) []requestHeader {
	object := c.Object("headers")
	if object == nil {
		return nil
	}
	var headers []requestHeader
	seen := map[string]bool{}
	for _, name := range object.Members() {
		canonical := http.CanonicalHeaderKey(name)
		var value *expression.Tree
		named := ""
		_, isObject := object.Value(name).(map[string]any)
		if isObject {
			named = readSecretName(object.Object(name))
		} else {
			value = object.Tree(name)
			if text, isText := object.Value(name).(string); isText && isCredentialHeader(name) && isConstant(text) {
				object.Refuse(name, mustBeSecret)
			}
		}
		switch {
		case !isHeaderName(name):
			object.Fault(name, "must be a valid header name")
		case egress.HeaderRefused(name) || canonical == headerIdempotencyKey:
			object.Fault(name, "must not be set, because the service sets this header")
		case seen[canonical]:
			object.Fault(name, "must not occur twice; header names ignore upper and lower case")
		case !isObject && kindOf(object.Value(name)) == kindOther:
			object.Fault(name, `must be a text, number, boolean or {"secret": name}`)
		}
		seen[canonical] = true
		if value != nil || named != "" { // null is a header left out
			headers = append(headers, requestHeader{canonical, value, named})
		}
	}
	return headers
}

// isHeaderName reports whether name is a token of RFC 9110, section 5.6.2.
func isHeaderName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}

// Effect is true: the request reaches outside.
func (*httpRequest) Effect() bool { return true }

// Run sends the request once.
func (r *httpRequest) Run(ctx context.Context, call *workflow.Call) (workflow.Result, error) {
	request, err := r.build(call.Env)
	if err != nil {
		return workflow.Result{}, err
	}
	request.Header.Set(headerIdempotencyKey, call.IdempotencyKey())
	var hidden redactor
	answer, err := r.send(ctx, call, request, &hidden)
	if err != nil {
		return workflow.Result{}, err
	}
	if !r.success.has(answer.Status) {
		return workflow.Result{}, r.refused(answer, call.At)
	}
	if call.AcquireMemory != nil {
		call.AcquireMemory(ctx, len(answer.Body))
	}
	output, err := readAnswer(answer)
	if err != nil {
		return workflow.Result{}, &workflow.TaskError{
			Code: workflow.CodeExternalService, StatusCode: answer.Status, Message: err.Error(),
		}
	}
	return workflow.Result{Output: hidden.apply(output)}, nil
}

// send authorizes and sends the request. A service that does not take a kept
// access token is asked once more with a new one.
func (r *httpRequest) send(ctx context.Context, call *workflow.Call, request egress.Request, hidden *redactor) (*egress.Response, error) {
	for again := r.auth != nil && r.auth.kind == authOAuth2; ; again = false {
		authorized := request
		authorized.Header = request.Header.Clone()
		if err := r.authorize(ctx, &authorized, call, hidden); err != nil {
			return nil, err
		}
		answer, err := r.http.Do(ctx, authorized)
		if err != nil {
			return nil, r.unanswered(ctx, call, err)
		}
		if !again || answer.Status != http.StatusUnauthorized {
			return answer, nil
		}
		r.tokens.forget(authorized.Header.Get(headerAuthorization))
	}
}

// unanswered makes the failure of a request that got no answer. What the
// network said is logged only: told to the caller, it would be a port scanner.
func (r *httpRequest) unanswered(ctx context.Context, call *workflow.Call, err error) error {
	failed, ok := errors.AsType[*egress.Error](err)
	if !ok {
		return err
	}
	r.log.InfoContext(ctx, "an http-request got no answer",
		"executionId", call.Env.ExecutionID, "task", call.Env.Path, "attempt", call.Attempt, "error", err)
	result := &workflow.TaskError{
		Code:    workflow.CodeExternalService,
		Message: "the service could not be reached or gave no usable answer",
	}
	switch failed.Reason {
	case egress.TooLarge:
		result.Message = "the answer is larger than maxResponseBytes"
	case egress.TimedOut:
		result.Message, result.Retryable = "the service gave no usable answer in time", r.repeatable()
	case egress.Unreachable:
		result.Retryable = true
	case egress.Broken:
		result.Retryable = r.repeatable()
	case egress.Refused, egress.Malformed: // would end the same way again
	}
	return result
}

// repeatable reports whether a request that may have had its effect can be
// sent again by default (contract 4.4).
func (r *httpRequest) repeatable() bool {
	return r.method != http.MethodPost && r.method != http.MethodPatch
}

// refused returns the failure for a response with a status that successStatus does not
// include.
func (r *httpRequest) refused(answer *egress.Response, at time.Time) error {
	result := &workflow.TaskError{
		Code:       workflow.CodeExternalService,
		Message:    "the service answered with status " + strconv.Itoa(answer.Status),
		StatusCode: answer.Status,
	}
	switch answer.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		result.Retryable = true
	case http.StatusRequestTimeout:
		result.Retryable = r.repeatable()
	default:
		result.Retryable = answer.Status >= http.StatusInternalServerError && r.repeatable()
	}
	result.RetryAfter = retryAfter(answer.Header, at)
	return result
}
