package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"tranche/internal/fault"
	"tranche/internal/logging"
)

const requestIDHeader = "X-Request-Id"

// requestIDPattern matches the request ids that a caller may choose (contract 1.6).
var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// request collects the attributes of the log line of a request, and the functions that
// release its limits.
type request struct {
	id            string
	address       string // IP address of the caller
	userAgent     string // at most userAgentMax characters
	tenant        string
	executionID   string
	route         string // pattern of the operation; empty if there is none
	releaseRead   func() // its place among the reads of its tenant
	releaseAnswer func() // the memory of its answer
}

// userAgentMax is how many characters of a User-Agent are kept.
const userAgentMax = 300

func newRequest() *request { return &request{releaseRead: func() {}, releaseAnswer: func() {}} }

type requestKey struct{}

func requestOf(ctx context.Context) *request {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r
	}
	return newRequest()
}

// CallerAgent returns the User-Agent of the caller, cut to 300 characters.
func CallerAgent(ctx context.Context) string { return requestOf(ctx).userAgent }

// noteTenant adds the tenant to all further log lines of the request.
func noteTenant(ctx context.Context, slug string) context.Context {
	requestOf(ctx).tenant = slug
	return logging.With(ctx, logging.Tenant, slug)
}

// NoteExecution adds the id of the execution that a request works on to the log lines
// of its answer.
func NoteExecution(ctx context.Context, id uuid.UUID) { requestOf(ctx).executionID = id.String() }

// observe gives each request its id and logs a line when it has been answered. The
// line has no query, because signed addresses have their signature in the query.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := s.config.Clock()
		req := newRequest()
		req.id, req.address, req.userAgent = r.Header.Get(requestIDHeader), s.addressOf(r), userAgentOf(r)
		if !requestIDPattern.MatchString(req.id) {
			req.id = uuid.Must(uuid.NewV7()).String()
		}
		ctx := context.WithValue(logging.With(r.Context(), logging.RequestID, req.id), requestKey{}, req)
		recorded := &recorder{ResponseWriter: w}
		recorded.Header().Set(requestIDHeader, req.id)
		recorded.Header().Set("X-Content-Type-Options", "nosniff")
		recorded.Header().Set("Cache-Control", "no-store")
		defer func() {
			req.releaseAnswer()
			took := s.config.Clock().Sub(begun)
			if s.config.Answered != nil {
				s.config.Answered(r.Method, req.route, recorded.status, took)
			}
			attrs := []slog.Attr{
				slog.String("method", r.Method),
				slog.String("path", s.loggedPath(r.URL.Path)),
				slog.Int("status", recorded.status),
				slog.Int64("durationMs", took.Milliseconds()),
			}
			if req.tenant != "" {
				attrs = append(attrs, slog.String(logging.Tenant, req.tenant))
			}
			if req.executionID != "" {
				attrs = append(attrs, slog.String(logging.ExecutionID, req.executionID))
			}
			s.config.Log.LogAttrs(ctx, slog.LevelInfo, "request", attrs...)
		}()
		next.ServeHTTP(recorded, r.WithContext(ctx))
	})
}

// noteRoute notes the route pattern of the request.
func noteRoute(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, route := requestOf(r.Context()), chi.RouteContext(r.Context())
		defer func() { req.route = route.RoutePattern() }() // also if the handler panics
		next.ServeHTTP(w, r)
	})
}

// loggedPath removes the credential after Config.SecretPath. The prefix is found
// anywhere in the path: if a proxy adds something before it, the answer is 404 and
// the credential stays valid.
func (s *Server) loggedPath(path string) string {
	if s.config.SecretPath == "" {
		return path
	}
	if before, _, found := strings.Cut(path, s.config.SecretPath); found {
		return before + s.config.SecretPath
	}
	return path
}

// userAgentOf returns the User-Agent as text that PostgreSQL can store.
func userAgentOf(r *http.Request) string {
	agent := []rune(strings.ToValidUTF8(strings.ReplaceAll(r.UserAgent(), "\x00", ""), ""))
	return string(agent[:min(len(agent), userAgentMax)])
}

// recoverPanic answers 500 if a handler panics and logs the stack.
func (s *Server) recoverPanic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if cause := recover(); cause != nil {
				s.answerPanic(w, r, cause)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func (s *Server) answerPanic(w http.ResponseWriter, r *http.Request, cause any) {
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause) // net/http closes the connection
	}
	s.config.Log.ErrorContext(r.Context(), "handler panicked", slog.Any("cause", cause), slog.String("stack", string(debug.Stack())))
	if recorded, ok := w.(*recorder); ok && recorded.status != 0 {
		return
	}
	err := fault.Wrap(fmt.Errorf("panic: %v", cause), fault.Internal, "an unexpected error occurred")
	s.writeProblem(w, s.Problem(r.Context(), err))
}

// recorder records the status of the answer.
type recorder struct {
	http.ResponseWriter
	status int // 0 until the header is sent
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(data []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(data)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
