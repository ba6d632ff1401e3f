package task

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/egress"
	"tranche/internal/workflow"
)

// target is a service outside that records what reaches it.
type target struct {
	*httptest.Server
	mu       sync.Mutex
	requests []received
}

type received struct {
	method, uri, body string
	header            http.Header
}

func serve(t *testing.T, answer http.HandlerFunc) *target {
	t.Helper()
	s := &target{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.requests = append(s.requests, received{r.Method, r.URL.RequestURI(), string(body), r.Header.Clone()})
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// all returns what has reached the target so far.
func (s *target) all() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *target) last(t *testing.T) received {
	t.Helper()
	requests := s.all()
	require.NotEmpty(t, requests)
	return requests[len(requests)-1]
}

// request compiles an http-request that may reach the target; URL in the
// config stands for its address.
func (s *target) request(t *testing.T, config string) workflow.Program {
	t.Helper()
	open, err := egress.ParseAllow(s.Listener.Addr().String())
	require.NoError(t, err)
	p, details := compile(t, Types(Ports{HTTP: egress.New(open)}), "http-request", strings.ReplaceAll(config, "URL", s.URL))
	require.Empty(t, details, config)
	require.True(t, p.Effect())
	return p
}

func ok(http.ResponseWriter, *http.Request) {}

func TestHTTPRequestSends(t *testing.T) {
	t.Parallel()
	s := serve(t, ok)
	for _, c := range []struct {
		config string
		want   received
	}{
		{`{"url":"URL/a"}`, received{"GET", "/a", "", http.Header{"Idempotency-Key": {"e1/t"}, "User-Agent": {"Tranche"}}}},
		{
			`{"url":"URL/a","method":"DELETE","headers":{"x-plain":"{{ input.name }}","X-Number":7,"X-None":"{{ input.none }}","X-Null":null,"Accept":"text/csv"}}`,
			received{"DELETE", "/a", "", http.Header{"X-Plain": {"Ada B"}, "X-Number": {"7"}, "X-None": nil, "X-Null": nil, "Accept": {"text/csv"}}},
		},
		{
			`{"url":"URL/a","method":"POST","body":{"amount":"{{ input.amount }}","list":[1.10,"{{ input.name }}!"],"none":"{{ input.none }}"}}`,
			received{"POST", "/a", `{"amount":1000.10,"list":[1.10,"Ada B!"],"none":null}`, http.Header{"Content-Type": {"application/json"}}},
		},
		{`{"url":"URL/a","method":"PUT","body":"{{ input.amount }}"}`, received{"PUT", "/a", `1000.10`, nil}},
		{
			`{"url":"URL/a","method":"PATCH","bodyText":"<a>{{ input.amount }}</a>","headers":{"content-type":"application/xml"}}`,
			received{"PATCH", "/a", `<a>1000.10</a>`, http.Header{"Content-Type": {"application/xml"}}},
		},
		{`{"url":"URL/a","method":"POST","bodyText":"{{ input.none }}"}`, received{"POST", "/a", ``, http.Header{"Content-Type": {"text/plain; charset=utf-8"}}}},
		{
			`{"url":"URL/a?x=1","query":{"q":"a&b=c d/é","n":5,"no":"{{ input.none }}","flag":true,"ids":["a","{{ input.amount }}",null]}}`,
			received{"GET", "/a?x=1&flag=true&ids=a&ids=1000.10&n=5&q=a%26b%3Dc%20d/%C3%A9", "", nil},
		},
		{`{"url":"URL/a","query":{"a&b":"1"}}`, received{"GET", "/a?a%26b=1", "", nil}},
	} {
		_, err := s.request(t, c.config).Run(t.Context(), callWith(t, `{"name":"Ada B","amount":1000.10}`))
		require.NoError(t, err, c.config)
		got := s.last(t)
		require.Equal(t, c.want.method+" "+c.want.uri, got.method+" "+got.uri)
		require.Equal(t, c.want.body, got.body)
		for name, values := range c.want.header {
			require.Equal(t, values, got.header[name], name)
		}
	}
}

// Each value is encoded for its place in the address (contract 4.4).
func TestHTTPRequestAddress(t *testing.T) {
	t.Parallel()
	s := serve(t, ok)
	for _, c := range []struct{ url, value, want string }{
		{"URL/a/{{ input.v }}/b", "x/y", "/a/x/y/b"},
		{"URL/a/{{ input.v }}/b", "x?y#z%2Fä b\n", "/a/x%3Fy%23z%252F%C3%A4%20b%0A/b"},
		{"URL/a/{{ input.v }}/b", "a:b@c;d=e&f+g,h", "/a/a:b@c;d=e&f+g,h/b"},
		{"URL/a/{{ input.v }}", "%2e%2e", "/a/%252e%252e"},
		{"URL/a/{{ input.v }}", "..x", "/a/..x"},
		{"URL/a?q={{ input.v }}", "x/y", "/a?q=x/y"},
		{"URL/a?q={{ input.v }}&r=1", "1&admin=true+#?%", "/a?q=1%26admin%3Dtrue%2B%23%3F%25&r=1"},
		{"URL/a?q={{ input.v }}", "..", "/a?q=.."},
		{"URL/{{ input.none }}", "", "/"},
		{"URL/{{ 1.10 }}/{{ true }}", "", "/1.10/true"},
		{"URL/a#{{ input.v }}", "frag", "/a"},
		{"{{ input.base }}/b/{{ input.v }}", "x?", "/b/x%3F"},
		{"{{ input.base + '/a/../b?c=' + input.v }}", "d&e", "/a/../b?c=d&e"},
		{"http://{{ input.host }}/h", "", "/h"},
		{"http://127.0.0.1:{{ input.port }}/p", "", "/p"},
	} {
		input := fmt.Sprintf(`{"v":%s,"base":%q,"host":%q,"port":%q}`, encode(t, c.value), s.URL,
			s.Listener.Addr().String(), s.URL[strings.LastIndexByte(s.URL, ':')+1:])
		_, err := s.request(t, `{"url":`+encode(t, c.url)+`}`).Run(t.Context(), callWith(t, input))
		require.NoError(t, err, c.url)
		require.Equal(t, c.want, s.last(t).uri, c.url)
	}
	sent := len(s.all())
	for _, c := range []struct{ url, value, message string }{
		{"URL/a/{{ input.v }}/b", "..", "url: a .. segment is not allowed"},
		{"URL/a/{{ input.v }}", "x/../y", "url: a .. segment is not allowed"},
		{"URL/a/{{ input.v }}", `..\\x`, "url: a .. segment is not allowed"},
		{"URL/a/.{{ input.v }}/b", ".", "url: a .. segment is not allowed"},
		{"http://{{ input.v }}/x", "evil.example/y?", "url: a value that is filled into the host"},
		{"http://{{ input.v }}/x", "a@evil.example", "url: a value that is filled into the host"},
		{"http://{{ input.v }}.example.com/x", "evil.example#", "url: a value that is filled into the host"},
		{"http://api.{{ input.v }}.example.com/x", "evil.example/", "url: a value that is filled into the host"},
		{"http://{{ input.v }}.example.com/x", "a b", "url: a value that is filled into the host"},
		{"{{ input.v }}/x", "http://user:hunter2@example.com", "url: must not contain credentials"},
		{"{{ input.v }}", "http://user:hunter2@example.com", "url: must not contain credentials"},
		{"{{ input.v }}", "file:///etc/passwd", "url: must begin with http:// or https://"},
		{"{{ input.v }}", "//example.com/", "url: must begin with http:// or https://"},
		{"{{ input.v }}", "", "url: must begin with http:// or https://"},
		{"{{ input.none }}", "", "url: the result is not a text"},
		{"URL/{{ input }}", "", "url: must not be an object or array"},
		{"URL/{{ input.none + 1 }}", "", "url: line 1"},
	} {
		failed := failing(t, s.request(t, `{"url":`+encode(t, c.url)+`}`), `{"v":`+encode(t, strings.ReplaceAll(c.value, `\\`, `\`))+`}`)
		require.Contains(t, failed.Message, c.message, c.url)
		require.NotContains(t, failed.Message, "hunter2")
		require.False(t, failed.Retryable)
		require.NotEqual(t, workflow.CodeExternalService, failed.Code)
	}
	require.Len(t, s.all(), sent, "none of these was sent")
}

func TestHTTPRequestRefusesValuesAtRun(t *testing.T) {
	t.Parallel()
	s := serve(t, ok)
	for config, message := range map[string]string{
		`{"url":"URL/","headers":{"X-A":"{{ input.lines }}"}}`:            "headers.X-A: the value contains a control character",
		`{"url":"URL/","headers":{"X-A":"a{{ input.lines }}"}}`:           "headers.X-A: the value contains a control character",
		`{"url":"URL/","headers":{"X-A":"{{ input }}"}}`:                  "headers.X-A: must not be an object",
		`{"url":"URL/","query":{"a":"{{ input }}"}}`:                      "query: a: must not be an object",
		`{"url":"URL/","method":"POST","bodyText":"{{ input }}"}`:         "bodyText: must not be an object",
		`{"url":"URL/","method":"POST","body":{"a":["{{ input.n+1 }}"]}}`: "body.a[0]: line 1",
	} {
		failed := failing(t, s.request(t, config), `{"lines":"a\r\nX-B: c"}`)
		require.Contains(t, failed.Message, message, config)
	}
	require.Empty(t, s.all())
}

func TestHTTPRequestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		contentType, body, want string
	}{
		"json":              {"application/json; charset=utf-8", `{"rate": 1.10, "n": 123456789012345678901234567890}`, `"body":{"n":123456789012345678901234567890,"rate":1.10}`},
		"problem":           {"application/problem+json", `[1]`, `"body":[1]`},
		"text":              {"text/plain", `{"a":1}`, `"body":"{\"a\":1}"`},
		"no type":           {"", "plain", `"body":"plain"`},
		"latin":             {"text/csv; charset=windows-1252", "caf\xe9", `"body":"café"`},
		"binary":            {"application/pdf", "%PDF\xff\xfe", `"body":"JVBERv/+","bodyEncoding":"base64"`},
		"NUL":               {"text/plain", "a\x00b", `"body":"YQBi","bodyEncoding":"base64"`},
		"empty json":        {"application/json", "", `"body":null`},
		"broken type":       {";;", "x", `"body":"x"`},
		"unknown charset":   {"text/plain; charset=klingon", "x", `"body":"x"`},
		"a JSON text alone": {"application/json", `"x"`, `"body":"x"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{c.contentType}
				w.Header()["X-Twice"] = []string{"a", "b"}
				_, _ = io.WriteString(w, c.body)
			})
			output, _ := run(t, s.request(t, `{"url":"URL/"}`), `{}`)
			require.Contains(t, output, c.want)
			require.Contains(t, output, `"status":200`)
			require.Contains(t, output, `"x-twice":"a, b"`)
		})
	}
	for _, body := range []string{`{"a":1`, `{"a":1,"a":2}`, "\xff", `{} {}`, strings.Repeat("[", 65) + strings.Repeat("]", 65), `"\u0000"`, `1e999`} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		})
		failed := failing(t, s.request(t, `{"url":"URL/"}`), `{}`)
		require.Equal(t, workflow.TaskError{
			Code: workflow.CodeExternalService, StatusCode: 200, Message: "the response body is not JSON, although its content type says so",
		}, *failed)
	}
}

func TestHTTPRequestSuccessStatus(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
		w.Header().Set("Location", "http://127.0.0.1:1/")
		w.WriteHeader(status)
	})
	for _, c := range []struct {
		successStatus string
		status        int
		ok            bool
	}{
		{`null`, 200, true},
		{`null`, 299, true},
		{`null`, 302, false},
		{`null`, 404, false},
		{`404`, 404, true},
		{`404`, 200, false},
		{`"200-204, 404"`, 204, true},
		{`"200-204, 404"`, 404, true},
		{`"200-204, 404"`, 205, false},
		{`[200,"400-499"]`, 422, true},
		{`[200,"400-499"]`, 201, false},
		{`302`, 302, true},
	} {
		p := s.request(t, fmt.Sprintf(`{"url":"URL/%d","successStatus":%s}`, c.status, c.successStatus))
		if c.ok {
			output, _ := run(t, p, `{}`)
			require.Contains(t, output, fmt.Sprintf(`"status":%d`, c.status))
			continue
		}
		failed := failing(t, p, `{}`)
		require.Equal(t, workflow.CodeExternalService, failed.Code)
		require.Equal(t, c.status, failed.StatusCode)
		require.Equal(t, fmt.Sprintf("the service answered with status %d", c.status), failed.Message)
	}
}

// What is tried again by default depends on the method (contract 4.4).
func TestHTTPRequestRetryability(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
		if status == 0 { // the connection ends after the request was read
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				conn.Close()
			}
			return
		}
		w.WriteHeader(status)
	})
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "POST", "PATCH"} {
		unsafe := method == "POST" || method == "PATCH"
		for status, want := range map[int]bool{0: !unsafe, 400: false, 404: false, 408: !unsafe, 429: true, 500: !unsafe, 502: !unsafe, 503: true, 504: !unsafe, 302: false} {
			failed := failing(t, s.request(t, fmt.Sprintf(`{"method":%q,"url":"URL/%d"}`, method, status)), `{}`)
			require.Equal(t, want, failed.Retryable, "%s %d", method, status)
			require.Equal(t, workflow.CodeExternalService, failed.Code)
			require.Equal(t, status, failed.StatusCode)
		}
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := listener.Addr().String()
	listener.Close()
	open, err := egress.ParseAllow(closed)
	require.NoError(t, err)
	for _, method := range []string{"GET", "POST"} {
		p, _ := compile(t, Types(Ports{HTTP: egress.New(open)}), "http-request", fmt.Sprintf(`{"method":%q,"url":"http://%s/"}`, method, closed))
		require.True(t, failing(t, p, `{}`).Retryable, "nothing was sent, so nothing can happen twice")
	}
}

func TestHTTPRequestDefaultRetryPolicy(t *testing.T) {
	t.Parallel()
	p, details := plan(t, Types(Ports{HTTP: egress.New(nil)}), `[
		{"id":"a","type":"http-request","config":{"url":"https://example.com/","source":"bureau"}},
		{"id":"b","type":"http-request","config":{"url":"https://example.com/","retry":{"maxAttempts":5},"timeoutMs":250000}}]`,
		`[{"source":"start","target":"a"},{"source":"a","target":"b"}]`)
	require.Empty(t, details)
	require.Equal(t, 3, p.Graph.Tasks[0].Retry.MaxAttempts)
	require.Equal(t, 500*time.Millisecond, p.Graph.Tasks[0].Retry.InitialDelay)
	require.Equal(t, "bureau", p.Graph.Tasks[0].Source)
	require.Equal(t, 5, p.Graph.Tasks[1].Retry.MaxAttempts)
	require.Equal(t, 250*time.Second, p.Graph.Tasks[1].Timeout)
	require.True(t, p.Effects)
}

func TestHTTPRequestRetryAfter(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		retryAfter, date string
		want             time.Duration
	}{
		{"7", "", 7 * time.Second},
		{" 7 ", "", 7 * time.Second},
		{"0", "", 0},
		{"", "", 0},
		{"-1", "", 0},
		{"soon", "", 0},
		{"1.5", "", 0},
		{"99999999", "", retryAfterMax},
		{"99999999999999999999", "", 0},
		{"Sat, 21 Nov 2026 09:00:30 GMT", "", 30 * time.Second},
		{"Sat, 21 Nov 2026 09:00:30 GMT", "Sat, 21 Nov 2026 09:00:10 GMT", 20 * time.Second},
		{"Sat, 21 Nov 2026 08:00:00 GMT", "", 0},
		{"Thu, 21 Nov 2126 09:00:00 GMT", "", retryAfterMax},
	} {
		header := http.Header{"Retry-After": {c.retryAfter}}
		if c.date != "" {
			header.Set("Date", c.date)
		}
		require.Equal(t, c.want, retryAfter(header, at), c.retryAfter)
	}

	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	failed := failing(t, s.request(t, `{"method":"POST","url":"URL/"}`), `{}`)
	require.True(t, failed.Retryable)
	require.Equal(t, 3*time.Second, failed.RetryAfter)
}

// A repetition of a call sends the same request with the same key.
func TestHTTPRequestRepetition(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	p := s.request(t, `{"method":"POST","url":"URL/{{ input.b }}","body":{"a":"{{ input.a }}","at":"{{ now() }}","id":"{{ uuid() }}"},"query":{"z":1,"y":2}}`)
	for attempt := range 3 {
		call := callWith(t, `{"a":{"z":1,"b":2},"b":"x"}`)
		call.Attempt, call.At = attempt+1, call.At.Add(time.Duration(attempt)*time.Minute)
		_, err := p.Run(t.Context(), call)
		require.Error(t, err)
	}
	sent := s.all()
	require.Len(t, sent, 3)
	for _, r := range sent[1:] {
		require.Equal(t, sent[0].uri, r.uri)
		require.Equal(t, sent[0].body, r.body)
		require.Equal(t, []string{"e1/t"}, r.header["Idempotency-Key"])
	}
}

// Whatever keeps a request from an answer reads the same to the caller.
func TestHTTPRequestErrorsHideNetwork(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := listener.Addr().String()
	listener.Close()
	hangsUp := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	open, err := egress.ParseAllow(closed + "," + hangsUp.Listener.Addr().String())
	require.NoError(t, err)
	types := Types(Ports{HTTP: egress.New(open), Log: slog.New(slog.NewTextHandler(&logged, nil))})
	messages := map[string]bool{}
	for _, url := range []string{
		"http://127.0.0.1:1/", "http://169.254.169.254/latest/meta-data/?session=hunter2", "http://[::1]:80/", "http://" + closed + "/",
		hangsUp.URL, "http://does-not-exist.invalid/", "https://" + hangsUp.Listener.Addr().String() + "/",
	} {
		p, details := compile(t, types, "http-request", fmt.Sprintf(`{"method":"POST","url":%q}`, url))
		require.Empty(t, details)
		failed := failing(t, p, `{}`)
		require.Equal(t, workflow.CodeExternalService, failed.Code)
		require.Zero(t, failed.StatusCode)
		messages[failed.Message] = true
	}
	require.Len(t, messages, 1)
	require.Contains(t, messages, "the service could not be reached or gave no usable answer")
	require.Contains(t, logged.String(), "169.254.169.254")
	require.Contains(t, logged.String(), "executionId=e1")
	require.NotContains(t, logged.String(), "hunter2")
}

func TestHTTPRequestLimits(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 100))
	})
	failed := failing(t, s.request(t, `{"url":"URL/","maxResponseBytes":99}`), `{}`)
	require.Equal(t, "the answer is larger than maxResponseBytes", failed.Message)
	require.False(t, failed.Retryable)
	run(t, s.request(t, `{"url":"URL/","maxResponseBytes":100}`), `{}`)

	began := time.Now()
	failed = failing(t, s.request(t, `{"url":"URL/slow","timeoutMs":100}`), `{}`)
	require.Equal(t, workflow.CodeExternalService, failed.Code)
	require.Equal(t, "the service gave no usable answer in time", failed.Message)
	require.True(t, failed.Retryable)
	failed = failing(t, s.request(t, `{"url":"URL/slow","method":"POST","timeoutMs":100}`), `{}`)
	require.False(t, failed.Retryable, "it may have had its effect")
	require.Less(t, time.Since(began), 5*time.Second)
}

func TestHTTPRequestRefusals(t *testing.T) {
	t.Parallel()
	const at = "tasks[0].config."
	with := func(members string) string { return `{"url":"https://example.com/",` + members + `}` }
	requireRefusals(t, "http-request", []refusal{
		{`{}`, at + "url", "is required"},
		{`{"url":"/relative"}`, at + "url", "must begin with http:// or https://"},
		{`{"url":"ftp://example.com/"}`, at + "url", "must begin with http:// or https://"},
		{`{"url":"file:///{{ input.x }}"}`, at + "url", "must begin with http:// or https://"},
		{`{"url":"https://"}`, at + "url", "must have a host"},
		{`{"url":"https://exa mple.com/"}`, at + "url", "is not a valid address"},
		{`{"url":"https://example.com/a/../b"}`, at + "url", "a .. segment"},
		{`{"url":"https://user:hunter2@example.com/"}`, at + "url", "must not contain credentials"},
		{`{"url":"https://user:hunter2@example.com/{{ input.x }}"}`, at + "url", "must not contain credentials"},
		{`{"url":"https://user:hunter2@{{ input.x }}/"}`, at + "url", "must not contain credentials"},
		{`{"url":"https://{{ input.u }}:{{ input.p }}@example.com/"}`, at + "url", "must not contain credentials"},
		{`{"url":"https://example.com/{{ 1 + }}"}`, at + "url", ""},
		{`{"url":5}`, at + "url", "must be"},
		{with(`"method":"FETCH"`), at + "method", "must be one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"},
		{with(`"method":"get"`), at + "method", "must be one of"},
		{with(`"headers":{"Authorization":"Bearer hunter2"}`), at + "headers.Authorization", "must not hold a credential"},
		{with(`"headers":{"x-api-key":"hunter2"}`), at + "headers.x-api-key", "must not hold a credential"},
		{with(`"headers":{"Cookie":"session=hunter2"}`), at + "headers.Cookie", "must not hold a credential"},
		{with(`"headers":{"Host":"example.org"}`), at + "headers.Host", "must not be set, because the service sets this header"},
		{with(`"headers":{"content-length":"5"}`), at + "headers.content-length", "must not be set, because the service sets this header"},
		{with(`"headers":{"Transfer-Encoding":"chunked"}`), at + "headers.Transfer-Encoding", "must not be set, because the service sets this header"},
		{with(`"headers":{"Proxy-Authorization":"x"}`), at + "headers.Proxy-Authorization", "must not be set, because the service sets this header"},
		{with(`"headers":{"idempotency-key":"x"}`), at + "headers.idempotency-key", "must not be set, because the service sets this header"},
		{with(`"headers":{"X A":"x"}`), at + "headers.X A", "must be a valid header name"},
		{with(`"headers":{"X-A":"x","x-a":"y"}`), at + "headers.x-a", "must not occur twice; header names ignore upper and lower case"},
		{with(`"headers":{"X-A":"{{ nope }}"}`), at + "headers.X-A", ""},
		{with(`"headers":["a"]`), at + "headers", "must be an object"},
		{with(`"query":{"a":{"b":1}}`), at + "query.a", "must be a text"},
		{with(`"query":{"a":[[1]]}`), at + "query.a[0]", "must be a text"},
		{with(`"query":{"a":"{{ nope }}"}`), at + "query.a", ""},
		{with(`"query":"a=1"`), at + "query", "must be an object"},
		{with(`"body":{"a":["{{ nope }}"]}`), at + "body.a[0]", ""},
		{with(`"body":{},"bodyText":"x"`), at + "bodyText", "one of them"},
		{with(`"bodyText":{}`), at + "bodyText", "must be"},
		{with(`"successStatus":99`), at + "successStatus", "must be a status"},
		{with(`"successStatus":"2xx"`), at + "successStatus", "must be a status"},
		{with(`"successStatus":"299-200"`), at + "successStatus", "must be a status"},
		{with(`"successStatus":[200,true]`), at + "successStatus[1]", "must be a status"},
		{with(`"successStatus":[]`), at + "successStatus", "at least one"},
		{with(`"maxResponseBytes":0`), at + "maxResponseBytes", "between 1 and 5242880"},
		{with(`"maxResponseBytes":5242881`), at + "maxResponseBytes", "between 1 and 5242880"},
		{with(`"timeoutMs":300001`), at + "timeoutMs", "between 1 and 300000"},
		{with(`"source":5`), at + "source", "must be"},
	})
	_, details := compile(t, Types(Ports{HTTP: egress.New(nil)}), "http-request", with(`"timeoutMs":300001`))
	require.Len(t, details, 1, "what every task may have is bounded once")
	for _, config := range []string{
		with(`"headers":{"Authorization":"Bearer {{ input.token }}","X-A":"","Cookie":"{{ input.c }}"}`),
		`{"url":"{{ input.url }}"}`, `{"url":"https://{{ input.host }}:8443/a"}`, `{"url":"http://10.0.0.1/"}`, `{"url":"https://example.com/a@b"}`,
		`{"url":"https://example.com?mail={{ input.x }}@example.com"}`,
	} {
		_, details := compile(t, Types(Ports{HTTP: egress.New(nil)}), "http-request", config)
		require.Empty(t, details, config)
	}
}
