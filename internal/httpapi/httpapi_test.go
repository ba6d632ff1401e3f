package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/fault"
	"tranche/internal/identity"
	"tranche/internal/logging"
)

// exactValue is any JSON value with its exact text.
type exactValue struct{ json.RawMessage }

func (exactValue) Schema(huma.Registry) *huma.Schema { return &huma.Schema{} }

type echoInput struct {
	Body struct {
		Value exactValue `json:"value,omitzero"`
	}
}

type echoOutput struct {
	Body struct {
		Value exactValue `json:"value"`
	}
}

// testServer is a server with its own operations and a log.
type testServer struct {
	*Server
	url string
	log *bytes.Buffer
}

func newTestServer(t *testing.T) *testServer {
	t.Helper()
	log := &bytes.Buffer{}
	s := New(Config{
		Log:   slog.New(logging.NewHandler(slog.NewJSONHandler(log, nil))),
		Clock: time.Now,
		Verify: func(context.Context, string) (identity.Principal, error) {
			return identity.Principal{TenantSlug: "acme", Scopes: identity.RoleAdmin.Scopes()}, nil
		},
		SecretPath: "/v1/callbacks/",
	}, About{})
	s.bodyTimeMax = 100 * time.Millisecond
	failing := func(path string, err error) {
		Register(s, Operation{ID: path, Method: http.MethodGet, Path: path}, func(context.Context, *struct{}) (*struct{}, error) {
			return nil, err
		})
	}
	failing("/unexpected", errors.New("dial s3cret"))
	failing("/wrapped", fault.Wrap(errors.New("dial s3cret"), fault.Unavailable, "the database cannot be reached").WithRetryAfter(1500*time.Millisecond))
	failing("/limited", fault.New(fault.RateLimited, "too many requests").WithRetryAfter(time.Second))
	Register(s, Operation{ID: "panic", Method: http.MethodGet, Path: "/panic"}, func(context.Context, *struct{}) (*struct{}, error) {
		panic("s3cret")
	})
	Register(s, Operation{ID: "slow", Method: http.MethodPost, Path: "/slow", BodyMax: 100}, func(ctx context.Context, _ *echoInput) (*struct{}, error) {
		select { // longer than the body may take
		case <-time.After(300 * time.Millisecond):
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	Register(s, Operation{
		ID: "echo", Method: http.MethodPost, Path: "/echo", Scope: identity.ScopeWorkflowsRead,
	}, func(ctx context.Context, in *echoInput) (*echoOutput, error) {
		NoteExecution(ctx, uuid.MustParse("0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"))
		if string(in.Body.Value.RawMessage) == `"fail"` {
			return nil, errors.New("out of luck")
		}
		out := &echoOutput{}
		out.Body.Value = in.Body.Value
		return out, nil
	})
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return &testServer{Server: s, url: server.URL, log: log}
}

// reply is an answer of the server.
type reply struct {
	status int
	header http.Header
	text   string
}

func (s *testServer) do(t *testing.T, method, path, body string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer x")
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return reply{response.StatusCode, response.Header, string(text)}
}

func TestErrorsAreOpaqueAndLogged(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	for path, want := range map[string]struct {
		status      int
		code, retry string
	}{
		"/unexpected": {http.StatusInternalServerError, "INTERNAL_ERROR", ""},
		"/panic":      {http.StatusInternalServerError, "INTERNAL_ERROR", ""},
		"/wrapped":    {http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE", "2"},
		"/limited":    {http.StatusTooManyRequests, "RATE_LIMITED", "1"},
	} {
		s.log.Reset()
		got := s.do(t, http.MethodGet, path, "")
		require.Equal(t, want.status, got.status, path)
		require.Equal(t, "application/json", got.header.Get("Content-Type"))
		require.Equal(t, want.retry, got.header.Get("Retry-After"), path)
		require.Contains(t, got.text, want.code)
		require.NotContains(t, got.text, "s3cret")
		if want.status != http.StatusTooManyRequests {
			require.Contains(t, s.log.String(), "s3cret", "the log has the cause of %s", path)
			require.Contains(t, s.log.String(), got.header.Get("X-Request-Id"))
		}
	}
}

func TestSlowBody(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"))
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(answer), "HTTP/1.1 408")
	require.Contains(t, string(answer), `"REQUEST_TIMEOUT"`)

	// The limit applies to the body. A handler may take longer.
	got := s.do(t, http.MethodPost, "/slow", `{"value":1}`)
	require.Equal(t, http.StatusNoContent, got.status, got.text)
	got = s.do(t, http.MethodPost, "/slow", `{"value":"`+strings.Repeat("x", 100)+`"}`)
	require.Equal(t, http.StatusRequestEntityTooLarge, got.status, "the limit of the operation")
}

func TestBodyKeepsExactValues(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	for _, value := range []string{
		`1.10`, `123456789012345678901234567890`, `0.1000000000000000000000000001`, `1E+2`, `-0`, `"<&>é\u2028"`, `null`,
		`[1.0,{"b":2.50,"a":[]}]`,
	} {
		got := s.do(t, http.MethodPost, "/echo", `{"value":`+value+`}`)
		require.Equal(t, http.StatusOK, got.status, got.text)
		if strings.ContainsAny(value, `{"`) {
			require.JSONEq(t, `{"value":`+value+`}`, got.text)
			continue
		}
		require.Equal(t, `{"value":`+value+"}\n", got.text)
	}
}

func TestRequestLog(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	got := s.do(t, http.MethodPost, "/echo", `{"value":"s3cret"}`)
	failed := s.do(t, http.MethodPost, "/echo", `{"value":"fail"}`)
	s.do(t, http.MethodGet, "/nothing?signature=s3cret", "")
	require.NotContains(t, s.log.String(), "s3cret")
	lines := strings.Split(strings.TrimSpace(s.log.String()), "\n")
	require.Len(t, lines, 4)
	for i, requestID := range []string{got.header.Get("X-Request-Id"), failed.header.Get("X-Request-Id"), failed.header.Get("X-Request-Id")} {
		var record map[string]any
		require.NoError(t, json.Unmarshal([]byte(lines[i]), &record))
		require.Equal(t, requestID, record["requestId"])
		require.Equal(t, "acme", record["tenant"])
		require.Equal(t, "0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11", record["executionId"])
	}
	var last map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[3]), &last))
	require.Equal(t, []any{"GET", "/nothing", float64(404)}, []any{last["method"], last["path"], last["status"]})
	require.Contains(t, last, "durationMs")
}

// The log omits the credential of a callback URL, also if a proxy adds a prefix to the path.
func TestRequestLogHidesCallbackTokens(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	for _, prefix := range []string{"", "/", "/behind/proxy"} {
		s.do(t, http.MethodPost, prefix+"/v1/callbacks/s3cret", "")
		require.Contains(t, s.log.String(), `"path":"`+prefix+`/v1/callbacks/"`)
	}
	require.NotContains(t, s.log.String(), "s3cret")
}
