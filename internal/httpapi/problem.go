package api

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

// Problem is the one error body of the service (section 7.2 of the interface
// specification, decisions 1.7).
type Problem struct {
	Code         string          `json:"code" doc:"What class of error it is." example:"VALIDATION_ERROR"`
	Message      string          `json:"message" doc:"What is wrong, for people; never repeats a value that was sent." example:"the request is invalid"`
	Details      []ProblemDetail `json:"details" doc:"The single faults, at most 50; empty where there is nothing to tell apart."`
	ErrorSubCode string          `json:"errorSubCode,omitempty" doc:"A finer class, where one applies to the whole error." example:"MISSING_REQUIRED_FIELD"`
	RequestID    string          `json:"requestId" doc:"The X-Request-Id of the answer; name it when you report the error." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`

	status int
	header http.Header
}

// ProblemDetail is one fault of a request.
type ProblemDetail struct {
	Field   string `json:"field" doc:"The place as the caller wrote it: tasks[0].config.url, per-page; body for the body as a whole." example:"tasks[0].config.url"`
	Message string `json:"message" doc:"What is wrong there." example:"is required"`
}

// Error returns the message.
func (p *Problem) Error() string { return p.Message }

// GetStatus returns the HTTP status; huma.StatusError.
func (p *Problem) GetStatus() int { return p.status }

// GetHeaders returns the headers that go with the error; huma.HeadersError.
func (p *Problem) GetHeaders() http.Header { return p.header }

// retryAfterDefault is the Retry-After of a 503 whose cause names no time.
const retryAfterDefault = 2 * time.Second

// answer is how a kind of fault appears in HTTP.
type answer struct {
	status int
	code   string
}

// answerOf is the one place where kinds become statuses and codes.
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

// newProblem turns an error into the answer for it, logs what the answer must
// not show, and has refusals counted.
func (s *Server) newProblem(ctx context.Context, err error) *Problem {
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
		Details:      problemDetails(f.Details),
		ErrorSubCode: string(f.SubCode),
		RequestID:    requestID(ctx),
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
	s.noteRefusal(ctx, p)
	return p
}

func problemDetails(details []fault.Detail) []ProblemDetail {
	answered := make([]ProblemDetail, len(details))
	for i, d := range details {
		answered[i] = ProblemDetail{Field: d.Field, Message: d.Message}
	}
	return answered
}

// levelOf is error for what somebody has to look into.
func levelOf(status int) slog.Level {
	if status == http.StatusInternalServerError {
		return slog.LevelError
	}
	return slog.LevelWarn
}

// writeProblem answers outside of Huma.
func (s *Server) writeProblem(w http.ResponseWriter, p *Problem) {
	maps.Copy(w.Header(), p.header)
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(p.status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(p)
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	s.writeProblem(w, s.newProblem(r.Context(), fault.New(fault.NotFound, "there is nothing at this path")))
}

// methodNotAllowed names the methods that the path has, which chi does only
// in its own handler.
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
	if len(allowed) == 0 { // chi asks for a method that it does not know before it looks at the path
		s.notFound(w, r)
		return
	}
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	p := s.newProblem(r.Context(), fault.New(fault.Invalid, "the path does not have this method, but %s", strings.Join(allowed, ", ")))
	p.status, p.Code = http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED"
	p.header.Set("Allow", strings.Join(allowed, ", "))
	s.writeProblem(w, p)
}

// humaProblem replaces huma.NewErrorWithContext: what Huma finds by itself,
// faults of parameters above all, is answered like everything else. Huma's
// details carry the value that was sent; it is left out.
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
	p := &Problem{Code: a.code, Message: f.Message, ErrorSubCode: string(f.SubCode), status: a.status, Details: problemDetails(f.Details)}
	if ctx != nil {
		p.RequestID = requestID(ctx.Context())
	}
	return p
}

// parameterDetail puts one of Huma's findings into our terms.
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
		detail.Message = "is not valid" // what follows would repeat the value
	}
	return detail
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return fmt.Sprintf("an %s", noun)
	}
	return fmt.Sprintf("a %s", noun)
}

// init makes Huma answer in our terms; Huma keeps these as globals that must
// be set before the first operation is registered.
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
	validation.MsgExpectedRFC3339DateTime = "must be a date and time by RFC 3339"
	validation.MsgExpectedRFC3339Date = "must be a date by RFC 3339"
}
