package api

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

	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/logging"
)

const requestIDHeader = "X-Request-Id"

// requestIDPattern is what a caller's own request id may look like (decisions 1.6).
var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// request is what is learnt about a request while it is answered, for the line
// that is logged at its end.
type request struct {
	id            string
	address       string // where it came from
	userAgent     string // as the caller says, cut to userAgentMax
	tenant        string
	executionID   string
	route         string // the pattern of its endpoint; empty where there is none
	releaseRead   func() // ends the read for the semaphore of reads; nil if the request does not read
	releaseAnswer func() // returns the memory of a large answer; nil for most requests
}

// userAgentMax is how many characters of a User-Agent are kept.
const userAgentMax = 300

type requestKey struct{}

func requestOf(ctx context.Context) *request {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r
	}
	return &request{}
}

func requestID(ctx context.Context) string { return requestOf(ctx).id }

// noteTenant names the tenant in every log line of the request from here on.
func noteTenant(ctx context.Context, slug string) context.Context {
	requestOf(ctx).tenant = slug
	return logging.With(ctx, logging.Tenant, slug)
}

// noteExecution names the execution in the lines that are logged when the request has
// been answered, or refused.
func noteExecution(ctx context.Context, id uuid.UUID) { requestOf(ctx).executionID = id.String() }

// observe gives each request its id and logs a line when it has been answered.
// The query is left out, for signed addresses carry their signature there, and
// so is the end of a callback address, which is one.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := s.config.Clock()
		req := &request{id: r.Header.Get(requestIDHeader), address: s.addressOf(r), userAgent: callerAgent(r)}
		if !requestIDPattern.MatchString(req.id) {
			req.id = uuid.Must(uuid.NewV7()).String()
		}
		ctx := context.WithValue(logging.With(r.Context(), logging.RequestID, req.id), requestKey{}, req)
		recorded := &recorder{ResponseWriter: w}
		recorded.Header().Set(requestIDHeader, req.id)
		recorded.Header().Set("X-Content-Type-Options", "nosniff")
		recorded.Header().Set("Cache-Control", "no-store")
		defer func() {
			if req.releaseAnswer != nil {
				req.releaseAnswer()
			}
			took := s.config.Clock().Sub(begun)
			if s.config.Answered != nil {
				s.config.Answered(r.Method, req.route, recorded.status, took)
			}
			attrs := []slog.Attr{
				slog.String("method", r.Method),
				slog.String("path", loggedPath(r.URL.Path)),
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

// noteRoute notes which endpoint took the request, if one did.
func noteRoute(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, route := requestOf(r.Context()), chi.RouteContext(r.Context())
		defer func() { req.route = route.RoutePattern() }() // of a handler that panics too
		next.ServeHTTP(w, r)
	})
}

// loggedPath leaves out what follows CallbackPath wherever that is: a proxy that puts
// something before it has the address answered with 404, and it stays good.
func loggedPath(path string) string {
	if before, _, isCallback := strings.Cut(path, execution.CallbackPath); isCallback {
		return before + execution.CallbackPath
	}
	return path
}

// callerAgent is the User-Agent, as far as PostgreSQL could hold it.
func callerAgent(r *http.Request) string {
	agent := []rune(strings.ToValidUTF8(strings.ReplaceAll(r.UserAgent(), "\x00", ""), ""))
	return string(agent[:min(len(agent), userAgentMax)])
}

// recoverPanic answers 500 for a handler that panicked and logs where.
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
		panic(cause) // asks net/http to cut the connection
	}
	s.config.Log.ErrorContext(r.Context(), "panic", slog.Any("cause", cause), slog.String("stack", string(debug.Stack())))
	if recorded, ok := w.(*recorder); ok && recorded.status != 0 {
		return
	}
	err := fault.Wrap(fmt.Errorf("panic: %v", cause), fault.Internal, "an unexpected error occurred")
	s.writeProblem(w, s.newProblem(r.Context(), err))
}

// recorder remembers the status that was sent.
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
