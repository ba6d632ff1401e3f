package api_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/server"
)

func TestContract(t *testing.T) {
	t.Parallel()
	runShared(t, map[string]func(*testing.T, *apitest.Service){
		"Errors": testContractErrors,
		"Bodies": testContractBodies,
	})
}

func testContractErrors(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)

	t.Run("router", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"/", "/v2", "/v2/workflows/", "/v2/workflows/x/unknown", "/v3/workflows", "//v2/workflows"} {
			c.Get(t, path).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
		}
		c.Do(t, "BREW", "/nothing", nil).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
		for path, allow := range map[string]string{
			"/v2/workflows":             "GET, POST, HEAD",
			"/v2/workflows/x":           "GET, PUT, DELETE, HEAD",
			"/v2/workflows/x/publish":   "POST",
			"/healthz":                  "GET, HEAD",
			"/openapi.json":             "GET, HEAD",
			"/v2/workflows/a%2Fb%20%3F": "GET, PUT, DELETE, HEAD",
		} {
			for _, method := range []string{http.MethodPatch, http.MethodOptions, http.MethodTrace, "BREW"} {
				refused := c.Do(t, method, path, nil)
				refused.ExpectProblem(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "")
				require.Equal(t, allow, refused.Header.Get("Allow"), path)
			}
		}
		c.Do(t, http.MethodHead, "/v2/workflows", nil).Expect(http.StatusOK)
		c.Do(t, http.MethodHead, "/v2/workflows/x", nil).Expect(http.StatusNotFound)
	})

	t.Run("request id", func(t *testing.T) {
		t.Parallel()
		for _, id := range []string{"a", "A-Z_0.9", strings.Repeat("x", 128)} {
			header := apitest.Header{Name: "X-Request-Id", Value: id}
			require.Equal(t, id, c.Get(t, "/v2/workflows", header).Header.Get("X-Request-Id"))
			require.Equal(t, id, c.Get(t, "/nothing", header).Text("requestId"))
		}
		for _, id := range []string{"a b", "é", "a/b", strings.Repeat("x", 129)} {
			made := c.Get(t, "/v2/workflows", apitest.Header{Name: "X-Request-Id", Value: id}).Header.Get("X-Request-Id")
			require.Regexp(t, `^[0-9a-f-]{36}$`, made)
		}
		require.NotEqual(t, c.Get(t, "/healthz").Header.Get("X-Request-Id"), c.Get(t, "/healthz").Header.Get("X-Request-Id"))
	})

	t.Run("authorization header", func(t *testing.T) {
		t.Parallel()
		for _, value := range []string{"Bearer", "Bearer ", "Basic eDp5", c.Token, "Bearer " + c.Token + "x", "Bearer " + c.Token[:40]} {
			s.Anonymous().Get(t, "/v2/workflows", apitest.Header{Name: "Authorization", Value: value}).
				ExpectProblem(http.StatusUnauthorized, "UNAUTHORIZED", "")
		}
		s.Anonymous().Get(t, "/v2/workflows", apitest.Header{Name: "Authorization", Value: "bearer " + c.Token}).Expect(http.StatusOK)
		twice, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/v2/workflows", http.NoBody)
		require.NoError(t, err)
		twice.Header["Authorization"] = []string{"Bearer " + c.Token, "Bearer " + c.Token}
		answer, err := http.DefaultClient.Do(twice)
		require.NoError(t, err)
		defer answer.Body.Close()
		require.Equal(t, http.StatusUnauthorized, answer.StatusCode)
		// A caller without access gets no errors of the body.
		s.Anonymous().Post(t, "/v2/workflows", apitest.Raw(`{`)).ExpectProblem(http.StatusUnauthorized, "UNAUTHORIZED", "")
	})

	t.Run("health", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "ok", s.Anonymous().Get(t, "/healthz").Expect(http.StatusOK).Text("status"))
		require.Equal(t, "ok", s.Anonymous().Get(t, "/readyz").Expect(http.StatusOK).Text("status"))
	})
}

// endless is a reader of spaces without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func testContractBodies(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleDeveloper)

	t.Run("malformed", func(t *testing.T) {
		t.Parallel()
		deep := strings.Repeat(`[`, 63) + strings.Repeat(`]`, 63)
		for name, tc := range map[string]struct{ body, field string }{
			"cut":                  {`{"name":`, ""},
			"not JSON":             {`name=x`, "body"},
			"trailing comma":       {`{"name":"x",}`, ""},
			"comment":              {`{} // x`, "body"},
			"garbage behind":       {`{"name":"x","alias":"y"} x`, "body"},
			"two values":           {`{}{}`, "body"},
			"NaN":                  {`{"name":NaN}`, ""},
			"byte order mark":      {"\ufeff{}", "body"},
			"duplicate":            {`{"name":"x","name":"y","alias":"z"}`, "name"},
			"duplicate inside":     {`{"name":"x","alias":"y","tasks":[{"id":"a","id":"b","type":"end"}]}`, "tasks[0].id"},
			"duplicate by escapes": {`{"name":"x","n\u0061me":"y"}`, "name"},
			"NUL":                  {`{"name":"a\u0000b","alias":"y"}`, "name"},
			"NUL in a name":        {`{"a\u0000b":1}`, ""},
			"invalid UTF-8":        {"{\"name\":\"\xff\",\"alias\":\"y\"}", ""},
			"lone surrogate":       {`{"name":"\ud800","alias":"y"}`, ""},
			"too deep":             {`{"name":"x","alias":"y","tasks":[{"id":"a","type":"end","config":{"x":` + deep + `}}]}`, ""},
			"number too long":      {`{"name":"x","alias":"y","inputSchema":{"maximum":` + strings.Repeat("9", 101) + `}}`, "inputSchema.maximum"},
			"exponent too large":   {`{"name":"x","alias":"y","inputSchema":{"maximum":1e1000000}}`, "inputSchema.maximum"},
		} {
			t.Run(name, func(t *testing.T) {
				problem := c.Post(t, "/v2/workflows", apitest.Raw(tc.body)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "")
				require.Len(t, problem.Details, 1)
				if tc.field != "" {
					require.Equal(t, tc.field, problem.Details[0].Field)
				}
			})
		}
		require.Equal(t, "0", c.Get(t, "/v2/workflows").Text("pagination.total"))
	})

	t.Run("values are not echoed", func(t *testing.T) {
		t.Parallel()
		for _, body := range []string{
			`{"name":["s3cret"],"alias":"S3CRET s3cret","executionMode":"s3cret"}`,
			`{"name":"s3cret","name":"s3cret"}`, `s3cret`, `"s3cret"`, `{"name":"x","alias":"y","tasks":[{"id":"s3cret s3cret","type":7}]}`,
		} {
			refused := c.Post(t, "/v2/workflows", apitest.Raw(body)).Expect(http.StatusBadRequest)
			require.NotContains(t, strings.ToLower(string(refused.Body)), "s3cret")
		}
		for _, query := range []string{"page=s3cret", "status=s3cret", "cursor=s3cret"} {
			require.NotContains(t, string(c.Get(t, "/v2/workflows?"+query).Expect(http.StatusBadRequest).Body), "s3cret")
		}
		require.NotContains(t, string(c.Get(t, "/v2/workflows/s3cret").Expect(http.StatusNotFound).Body), "s3cret")
	})

	t.Run("at most 50 details", func(t *testing.T) {
		t.Parallel()
		problem := c.Post(t, "/v2/workflows", apitest.Raw(`{"name":"x","alias":"y","tasks":[`+strings.Repeat(`1,`, 99)+`1]}`)).
			ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "INVALID_FIELD_TYPE")
		require.Len(t, problem.Details, 50)
	})

	t.Run("media types", func(t *testing.T) {
		t.Parallel()
		for name, accepted := range map[string]bool{
			"":                                   true,
			"application/json":                   true,
			"application/json; charset=utf-8":    true,
			`Application/JSON; charset="UTF-8"`:  true,
			"application/json; charset=latin1":   false,
			"text/json":                          false,
			"text/plain":                         false,
			"application/x-www-form-urlencoded":  false,
			"application/merge-patch+json":       false,
			"multipart/form-data; boundary=x":    false,
			"application/json, application/json": false,
			"nonsense":                           false,
		} {
			answer := c.Post(t, "/v2/workflows", apitest.Raw(`{}`), apitest.Header{Name: "Content-Type", Value: name})
			if accepted {
				answer.ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", "name", "alias")
			} else {
				answer.ExpectProblem(http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", "")
			}
		}
		c.Post(t, "/v2/workflows", apitest.Raw(`{}`), apitest.Header{Name: "Content-Encoding", Value: "gzip"}).
			ExpectProblem(http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", "")
	})

	t.Run("size", func(t *testing.T) {
		t.Parallel()
		const limit = 1 << 20
		body := []byte(`{"name":"x","alias":"y","extra":""}`)
		exact := bytes.Replace(body, []byte(`""`), []byte(`"`+strings.Repeat("x", limit-len(body))+`"`), 1)
		require.Len(t, exact, limit)
		over := bytes.Replace(exact, []byte(`x"`), []byte(`xx"`), 1)
		chunked := func(text []byte) io.Reader { return struct{ io.Reader }{bytes.NewReader(text)} }
		for _, fits := range []any{exact, chunked(exact)} {
			c.Post(t, "/v2/workflows", fits).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "extra")
		}
		for _, large := range []any{over, chunked(over)} {
			c.Post(t, "/v2/workflows", large).ExpectProblem(http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE", "")
		}
	})

	t.Run("size, client sends everything before it reads", func(t *testing.T) {
		t.Parallel()
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
		const size = 24 << 20 // more than the buffers of a connection
		_, err = fmt.Fprintf(conn, "POST /v2/workflows HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", c.Token, size)
		require.NoError(t, err)
		_, err = io.CopyN(conn, endless{}, size)
		require.NoError(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		defer answer.Body.Close()
		require.Equal(t, http.StatusRequestEntityTooLarge, answer.StatusCode)
	})

	t.Run("ignored body", func(t *testing.T) {
		t.Parallel()
		c.Do(t, http.MethodGet, "/v2/workflows", apitest.Raw(`nonsense`)).Expect(http.StatusOK)
		c.Do(t, http.MethodDelete, "/v2/workflows/x", apitest.Raw(`nonsense`)).Expect(http.StatusNotFound)
	})
}

// The database is unreachable for a while.
func TestDatabaseUnavailable(t *testing.T) {
	t.Parallel()
	var line *databaseLine
	s := apitest.Start(t, func(config *server.Config) {
		line = newDatabaseLine(t, config.DatabaseURL)
		config.DatabaseURL = line.url
	})
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	c.Post(t, "/v2/workflows", workflowBody("kept")).Expect(http.StatusCreated)

	line.cut()
	for range 3 {
		for _, refused := range []*apitest.Answer{
			c.Get(t, "/v2/workflows"),
			c.Get(t, "/v2/workflows/"+unknownID),
			c.Post(t, "/v2/workflows", workflowBody("lost")),
			c.Delete(t, "/v2/workflows/"+unknownID),
			s.Anonymous().Get(t, "/readyz"),
		} {
			refused.ExpectProblem(http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE", "")
			require.Regexp(t, `^[1-9][0-9]*$`, refused.Header.Get("Retry-After"))
		}
	}
	// Operations that do not use the database still work.
	s.Anonymous().Get(t, "/healthz").Expect(http.StatusOK)
	c.Post(t, "/v2/workflows", apitest.Raw(`{}`)).Expect(http.StatusBadRequest)
	s.Anonymous().Get(t, "/v2/workflows").Expect(http.StatusUnauthorized)

	line.restore(t)
	require.Eventually(t, func() bool {
		return s.Anonymous().Get(t, "/readyz").Status == http.StatusOK && c.Get(t, "/v2/workflows").Status == http.StatusOK
	}, 20*time.Second, 50*time.Millisecond, "it goes on by itself")
	require.Equal(t, "1", c.Get(t, "/v2/workflows").Text("pagination.total"))
}

// databaseLine is a proxy to the database that a test can cut.
type databaseLine struct {
	url             string
	address         string
	network, target string

	mu       sync.Mutex
	listener net.Listener
	open     []net.Conn
}

func newDatabaseLine(t *testing.T, databaseURL string) *databaseLine {
	t.Helper()
	config, err := pgx.ParseConfig(databaseURL)
	require.NoError(t, err)
	line := &databaseLine{address: "127.0.0.1:0"}
	line.network, line.target = pgconn.NetworkAddress(config.Host, config.Port)
	line.restore(t)
	line.address = line.listener.Addr().String()
	host, port, err := net.SplitHostPort(line.address)
	require.NoError(t, err)
	line.url = fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=disable", host, port, config.User, config.Database)
	if config.Password != "" {
		line.url += " password=" + config.Password
	}
	t.Cleanup(line.cut)
	return line
}

// cut closes all connections and rejects new ones.
func (l *databaseLine) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.listener.Close()
	for _, conn := range l.open {
		_ = conn.Close()
	}
	l.open = nil
}

// restore accepts connections again.
func (l *databaseLine) restore(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", l.address)
	require.NoError(t, err)
	l.listener = listener
	go func() {
		for {
			caller, err := listener.Accept()
			if err != nil {
				return
			}
			database, err := net.Dial(l.network, l.target)
			if err != nil {
				_ = caller.Close()
				continue
			}
			l.mu.Lock()
			l.open = append(l.open, caller, database)
			l.mu.Unlock()
			go pass(caller, database)
			go pass(database, caller)
		}
	}()
}

func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}
