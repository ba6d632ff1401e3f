package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
	"github.com/go-chi/chi/v5"

	"tranche/internal/fault"
	"tranche/internal/logging"
)

// Problem is the body of every error (contract A.7.2, 1.7).
type Problem struct {
	Code         string          `json:"code" doc:"The class of the error." example:"VALIDATION_ERROR"`
	Message      string          `json:"message" doc:"A description of the error for people. It does not repeat values of the request." example:"the request is invalid"`
	Details      []ProblemDetail `json:"details" doc:"The single errors, at most 50. Empty if the message says everything."`
	ErrorSubCode string          `json:"errorSubCode,omitempty" doc:"A more specific class, if one applies to the whole error." example:"MISSING_REQUIRED_FIELD"`
	RequestID    string          `json:"requestId" doc:"The X-Request-Id of the response. Mention it when you report the error." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`

	status int
	header http.Header
}

// ProblemDetail is one error of a request.
type ProblemDetail struct {
	Field   string `json:"field" doc:"The member or parameter with the error, such as tasks[0].config.url or per-page. body stands for the body as a whole." example:"tasks[0].config.url"`
	Message string `json:"message" doc:"What is wrong with it." example:"is required"`
}

// Error returns the message.
func (p *Problem) Error() string { return p.Message }

// GetStatus returns the HTTP status. It implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.status }

// GetHeaders returns the headers of the error. It implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header { return p.header }

// WithStatus changes the status and the code, for statuses that no fault.Kind has.
func (p *Problem) WithStatus(status int, code string) *Problem {
	p.status, p.Code = status, code
	return p
}

// retryAfterDefault is the Retry-After of a 503 whose cause has none.
const retryAfterDefault = 2 * time.Second

// answer is the status and the code of a kind of error.
type answer struct {
	status int
	code   string
}

// answerOf maps kinds of error to HTTP. Nothing else does.
func answerOf(kind fault.Kind) answer {
	switch kind {
	case fault.Invalid:
		return answer{http.StatusBadRequest, "VALIDATION_ERROR"}
	case fault.Unauthorized:
		return answer{http.StatusUnauthorized, "UNAUTHORIZED"}
	case fault.Forbidden:
		return answer{http.StatusForbidden, "FORBIDDEN"}
	case fault.NotFound:
		return answer{http.StatusNotFound, "NOT_FOUND"}
	case fault.Conflict:
		return answer{http.StatusConflict, "CONFLICT"}
	case fault.Stale:
		return answer{http.StatusPreconditionFailed, "PRECONDITION_FAILED"}
	case fault.Unprocessable:
		return answer{http.StatusUnprocessableEntity, "UNPROCESSABLE_ENTITY"}
	case fault.TooLarge:
		return answer{http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE"}
	case fault.UnsupportedMedia:
		return answer{http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE"}
	case fault.RateLimited:
		return answer{http.StatusTooManyRequests, "RATE_LIMITED"}
	case fault.Unavailable:
		return answer{http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE"}
	case fault.Timeout:
		return answer{http.StatusRequestTimeout, "REQUEST_TIMEOUT"}
	default:
		return answer{http.StatusInternalServerError, "INTERNAL_ERROR"}
	}
}

// Problem returns the answer for an error of the request of ctx. A *Problem is
// returned as it is. The causes of statuses from 500 on are logged, because the
// answer does not show them.
func (s *Server) Problem(ctx context.Context, err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = fault.Wrap(err, fault.Unavailable, "the request was cancelled")
	}
	f := fault.From(err)
	a := answerOf(f.Kind)
	if a.status >= http.StatusInternalServerError && ctx.Err() == nil {
		attrs := []slog.Attr{slog.String("error", f.Error())}
		if id := requestOf(ctx).executionID; id != "" {
			attrs = append(attrs, slog.String(logging.ExecutionID, id))
		}
		s.config.Log.LogAttrs(ctx, levelOf(a.status), "request failed", attrs...)
	}
	p := &Problem{
		Code:         a.code,
		Message:      f.Message,
		Details:      ProblemDetails(f.Details),
		ErrorSubCode: string(f.SubCode),
		RequestID:    requestOf(ctx).id,
		status:       a.status,
		header:       http.Header{},
	}
	wait := f.RetryAfter
	if wait == 0 && f.Kind == fault.Unavailable {
		wait = retryAfterDefault
	}
	if wait > 0 {
		p.header.Set("Retry-After", wholeSeconds(wait))
	}
	if f.Kind == fault.Unauthorized {
		p.header.Set("WWW-Authenticate", "Bearer")
	}
	s.noteDenied(ctx, p)
	return p
}

// ProblemDetails converts the details of a fault.
func ProblemDetails(details []fault.Detail) []ProblemDetail {
	answered := make([]ProblemDetail, len(details))
	for i, d := range details {
		answered[i] = ProblemDetail{Field: d.Field, Message: d.Message}
	}
	return answered
}

// levelOf returns the log level of a status: 500 is a defect, 503 is temporary.
func levelOf(status int) slog.Level {
	if status == http.StatusInternalServerError {
		return slog.LevelError
	}
	return slog.LevelWarn
}

// writeProblem writes an answer outside of Huma.
func (s *Server) writeProblem(w http.ResponseWriter, p *Problem) {
	maps.Copy(w.Header(), p.header)
	w.Header().Set("Content-Type", ContentTypeJSON)
	w.WriteHeader(p.status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(p)
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	s.writeProblem(w, s.Problem(r.Context(), fault.New(fault.NotFound, "no operation has this path")))
}

// methodNotAllowed answers 405 with the methods of the path. chi lists them only in
// its own handler.
func (s *Server) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if s.router.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 { // chi rejects unknown methods before it looks at the path
		s.notFound(w, r)
		return
	}
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	p := s.Problem(r.Context(), fault.New(fault.Invalid, "this path does not support the method; it supports %s", strings.Join(allowed, ", "))).
		WithStatus(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
	p.header.Set("Allow", strings.Join(allowed, ", "))
	s.writeProblem(w, p)
}

// humaProblem replaces huma.NewErrorWithContext. Errors that Huma finds itself,
// mainly those of parameters, become problems as well. Huma's details contain the
// value that was sent, which a problem does not show.
func humaProblem(ctx huma.Context, status int, message string, errs ...error) huma.StatusError {
	f := fault.InvalidRequest()
	if status == http.StatusInternalServerError {
		f = fault.New(fault.Internal, "an unexpected error occurred")
	}
	for _, err := range errs {
		if detail, ok := errors.AsType[*huma.ErrorDetail](err); ok {
			f = f.WithDetails(parameterDetail(detail))
			continue
		}
		if own, ok := errors.AsType[*fault.Error](err); ok {
			f = f.WithDetails(own.Details...)
		}
	}
	if len(f.Details) == 0 && f.Kind == fault.Invalid {
		f.Message = message
	}
	a := answerOf(f.Kind)
	p := &Problem{Code: a.code, Message: f.Message, ErrorSubCode: string(f.SubCode), status: a.status, Details: ProblemDetails(f.Details)}
	if ctx != nil {
		p.RequestID = requestOf(ctx.Context()).id
	}
	return p
}

// parameterDetail translates a detail of Huma.
func parameterDetail(d *huma.ErrorDetail) fault.Detail {
	field := d.Location
	for _, prefix := range []string{"query.", "path.", "header.", "body."} {
		if rest, ok := strings.CutPrefix(field, prefix); ok {
			field = rest
			break
		}
	}
	detail := fault.Detail{Field: field, Message: d.Message}
	switch {
	case slices.Contains([]string{"invalid integer", "invalid boolean", "invalid float"}, d.Message):
		detail.SubCode = fault.InvalidFieldType
		detail.Message = "must be " + article(strings.TrimPrefix(d.Message, "invalid "))
	case strings.HasPrefix(d.Message, "required "):
		detail.SubCode = fault.MissingRequiredField
		detail.Message = "is required"
	case strings.HasPrefix(d.Message, "invalid value"):
		detail.Message = "is not valid" // the rest of Huma's message repeats the value
	}
	return detail
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return fmt.Sprintf("an %s", noun)
	}
	return fmt.Sprintf("a %s", noun)
}

// init sets Huma's global messages and error type. They must be set before the first
// operation is registered.
func init() {
	huma.NewErrorWithContext = humaProblem
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		return humaProblem(nil, status, message, errs...)
	}
	huma.DefaultArrayNullable = false
	huma.ValidateStrictCasing = true
	validation.MsgExpectedOneOf = "must be one of %s"
	validation.MsgExpectedMinimumNumber = "must be at least %.0f"
	validation.MsgExpectedMaximumNumber = "must be at most %.0f"
	validation.MsgExpectedMinLength = "must have at least %d characters"
	validation.MsgExpectedMaxLength = "must have at most %d characters"
	validation.MsgExpectedMatchPattern = "must match %s"
	validation.MsgExpectedRFC3339DateTime = "must be an RFC 3339 date and time such as 2026-11-21T02:09:25Z"
	validation.MsgExpectedRFC3339Date = "must be an RFC 3339 date such as 2026-11-21"
}
