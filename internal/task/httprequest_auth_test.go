package task

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/egress"
	"tranche/internal/workflow"
)

const hunter = "hunter2 & more"

// secretive compiles an http-request that may reach the target with the secret
// "key", bound to the target's host, and "other", bound to another.
func (s *target) secretive(t *testing.T, config string) workflow.Program {
	t.Helper()
	p, details := compile(t, s.secretTypes(t), "http-request", strings.ReplaceAll(config, "URL", s.URL))
	require.Empty(t, details, config)
	return p
}

// secretTypes are the types of secretive, which share the access tokens.
func (s *target) secretTypes(t *testing.T) map[string]workflow.TaskType {
	t.Helper()
	open, err := egress.ParseAllow("127.0.0.1/32")
	require.NoError(t, err)
	reveal := func(_ context.Context, tenant uuid.UUID, name string) (Secret, bool, error) {
		bound := func(u *url.URL) bool { return u.Host == s.Listener.Addr().String() && name != "other" }
		return Secret{Value: hunter, Bound: bound}, name != "none" && tenant == uuid.Nil, nil
	}
	return Types(Ports{HTTP: egress.New(open), RevealSecret: reveal})
}

func TestHTTPRequestAuth(t *testing.T) {
	t.Parallel()
	s := serve(t, ok)
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("Ada:"+hunter))
	for config, want := range map[string][2]string{
		`{"url":"URL/","auth":{"type":"bearer","secret":"key"}}`:                                                     {"Authorization", "Bearer " + hunter},
		`{"url":"URL/","auth":{"type":"basic","secret":"key","username":"{{ input.name }}"}}`:                        {"Authorization", basic},
		`{"url":"URL/","auth":{"type":"apiKey","secret":"key"}}`:                                                     {"X-Api-Key", hunter},
		`{"url":"URL/","auth":{"type":"apiKey","secret":"key","header":"X-Other"}}`:                                  {"X-Other", hunter},
		`{"url":"URL/","headers":{"X-Custom":{"secret":"key"},"X-Plain":"a"}}`:                                       {"X-Custom", hunter},
		`{"url":"URL/a?b=c","auth":{"type":"apiKey","secret":"key","query":"k"},"headers":{"X-A":{"secret":"key"}}}`: {"X-A", hunter},
	} {
		_, err := s.secretive(t, config).Run(t.Context(), callWith(t, `{"name":"Ada"}`))
		require.NoError(t, err, config)
		require.Equal(t, want[1], s.last(t).header.Get(want[0]), config)
		if strings.Contains(config, "query") {
			require.Equal(t, "/a?b=c&k=hunter2+%26+more", s.last(t).uri)
		}
	}
}

func TestHTTPRequestSecretsStayWithHost(t *testing.T) {
	t.Parallel()
	s := serve(t, ok)
	for config, message := range map[string]string{
		`{"url":"URL/","auth":{"type":"bearer","secret":"none"}}`:                                                                 "there is no secret none",
		`{"url":"URL/","auth":{"type":"bearer","secret":"other"}}`:                                                                "secret other must not be sent to this host",
		`{"url":"URL/","headers":{"X-A":{"secret":"other"}}}`:                                                                     "secret other must not be sent to this host",
		`{"url":"URL/","auth":{"type":"oauth2ClientCredentials","secret":"key","tokenUrl":"http://127.0.0.1:1/","clientId":"c"}}`: "must not be sent to the host of tokenUrl",
	} {
		failed := failing(t, s.secretive(t, config), `{}`)
		require.Equal(t, codeSecret, failed.Code)
		require.Contains(t, failed.Message, message)
	}
	require.Empty(t, s.all())
}

func TestHTTPRequestAuthRefusals(t *testing.T) {
	t.Parallel()
	const at = "tasks[0].config."
	with := func(auth string) string { return `{"url":"https://example.com/","auth":` + auth + `}` }
	requireRefusals(t, "http-request", []refusal{
		{with(`{}`), at + "auth.type", "is required"},
		{with(`{"type":"digest","secret":"s"}`), at + "auth.type", "must be one of"},
		{with(`{"type":"bearer"}`), at + "auth.secret", "is required"},
		{with(`{"type":"bearer","secret":"s","username":"u"}`), at + "auth.username", "is not a known property"},
		{with(`{"type":"basic","secret":"s"}`), at + "auth.username", "is required"},
		{with(`{"type":"apiKey","secret":"s","header":"Host"}`), at + "auth.header", "must be a header that can be set"},
		{with(`{"type":"apiKey","secret":"s","header":"A","query":"b"}`), at + "auth.query", "must not be given together with header"},
		{with(`{"type":"oauth2ClientCredentials","secret":"s"}`), at + "auth.tokenUrl", "is required"},
		{with(`{"type":"oauth2ClientCredentials","secret":"s","clientId":"c","tokenUrl":"ftp://a/"}`), at + "auth.tokenUrl", "http"},
		{`{"url":"https://example.com/","headers":{"X-A":{"secret":"s","x":1}}}`, at + "headers.X-A.x", "is not a known property"},
		{`{"url":"https://example.com/","headers":{"X-A":{}}}`, at + "headers.X-A.secret", "is required"},
		{`{"url":"https://example.com/","headers":{"authorization":"{{ input.a }}"},"auth":{"type":"bearer","secret":"s"}}`, at + "headers.Authorization", "must not be set, because auth sets this header"},
		{`{"url":"https://example.com/","body":1,"bodyForm":{}}`, at + "bodyForm", "must not be given together with body"},
		{`{"url":"https://example.com/","followRedirects":4}`, at + "followRedirects", "between 0 and 3"},
	})
}

func TestOAuth2TokenCache(t *testing.T) {
	t.Parallel()
	granted, stale := 0, false
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			granted++
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"Bearer","expires_in":3600}`, granted)
			return
		}
		if stale && r.Header.Get("Authorization") == "Bearer token-1" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, "you sent "+r.Header.Get("Authorization"))
	})
	p := s.secretive(t, `{"url":"URL/","auth":{"type":"oauth2ClientCredentials","secret":"key","tokenUrl":"URL/token","clientId":"c d","scope":"read"}}`)
	for range 3 {
		output, _ := run(t, p, `{}`)
		require.Contains(t, output, "you sent Bearer [redacted]")
	}
	require.Equal(t, 1, granted)
	asked := s.all()[0]
	require.Equal(t, "grant_type=client_credentials&scope=read", asked.body)
	require.Equal(t, "Basic "+base64.StdEncoding.EncodeToString([]byte(url.QueryEscape("c d")+":"+url.QueryEscape(hunter))), asked.header.Get("Authorization"))

	stale = true // the service takes the kept token no more
	run(t, p, `{}`)
	require.Equal(t, 2, granted)

	later := callWith(t, `{}`)
	later.At = later.At.Add(time.Hour)
	_, err := p.Run(t.Context(), later)
	require.NoError(t, err)
	require.Equal(t, 3, granted)
}

// A token is kept for whom it was given: a tenant, a secret as it is, an audience. It is
// not used to its very end.
func TestOAuth2TokenCacheSeparatesTenants(t *testing.T) {
	t.Parallel()
	granted := 0
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			granted++
			_, _ = io.WriteString(w, `{"access_token":"token","expires_in":600}`)
		}
	})
	open, err := egress.ParseAllow("127.0.0.1/32")
	require.NoError(t, err)
	written := time.Unix(0, 0)
	types := Types(Ports{HTTP: egress.New(open), RevealSecret: func(context.Context, uuid.UUID, string) (Secret, bool, error) {
		return Secret{Value: hunter, UpdatedAt: written, Bound: func(*url.URL) bool { return true }}, true, nil
	}})
	grants := func(audience string, tenant uuid.UUID, after time.Duration) int {
		before := granted
		p, details := compile(t, types, "http-request", strings.ReplaceAll(
			`{"url":"URL/","auth":{"type":"oauth2ClientCredentials","secret":"key","tokenUrl":"URL/token","clientId":"c","audience":"`+audience+`"}}`, "URL", s.URL))
		require.Empty(t, details)
		call := callWith(t, `{}`)
		call.At = call.At.Add(after)
		_, err := p.Run(workflow.WithTenant(t.Context(), tenant), call)
		require.NoError(t, err)
		return granted - before
	}
	one, two := uuid.New(), uuid.New()
	require.Equal(t, 1, grants("a", one, 0))
	require.Zero(t, grants("a", one, 569*time.Second))
	require.Equal(t, 1, grants("a", two, 0), "another tenant")
	require.Equal(t, 1, grants("b", one, 0), "another audience")
	require.Equal(t, 1, grants("a", one, 570*time.Second), "it ends soon")
	written = time.Unix(1, 0)
	require.Equal(t, 1, grants("a", one, 570*time.Second), "the secret was written anew")
}

// A token endpoint that does not answer holds up those who need its tokens, for as
// long as their task may take, and nobody else. Its answer, a refusal too, is that of
// all who wait for it.
func TestOAuth2ConcurrentTokenRequestsAreShared(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	var granted, slow atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/slow" && slow.Add(1) == 1:
			close(asked)
			<-answer
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/slow":
			w.WriteHeader(http.StatusTeapot)
		case r.URL.Path == "/token":
			fmt.Fprintf(w, `{"access_token":"token-%d"}`, granted.Add(1))
		case r.Header.Get("Authorization") == "Bearer token-1": // drops it from those that are kept
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	types := s.secretTypes(t)
	begin := func(ctx context.Context, tokenPath string) <-chan error {
		p, details := compile(t, types, "http-request", strings.ReplaceAll(
			`{"url":"URL/","auth":{"type":"oauth2ClientCredentials","secret":"key","tokenUrl":"URL`+tokenPath+`","clientId":"c"}}`, "URL", s.URL))
		require.Empty(t, details)
		call, ended := callWith(t, `{}`), make(chan error, 1)
		go func() {
			_, err := p.Run(ctx, call)
			ended <- err
		}()
		return ended
	}
	leaving, leave := context.WithCancel(t.Context())
	first := begin(leaving, "/slow")
	<-asked
	waiting, other := begin(t.Context(), "/slow"), begin(t.Context(), "/token")
	leave()
	for name, c := range map[string]struct {
		ended <-chan error
		want  error
	}{"who has left": {first, context.Canceled}, "who needs another": {other, nil}} {
		select {
		case err := <-c.ended:
			require.ErrorIs(t, err, c.want, name)
		case <-time.After(10 * time.Second):
			require.Fail(t, "one waits for a token", name)
		}
	}
	require.EqualValues(t, 2, granted.Load())
	time.Sleep(100 * time.Millisecond) // so that the one who waits does
	close(answer)
	require.ErrorContains(t, <-waiting, "503")
}

// A failure that is due to how a task asks is not that of tasks that ask otherwise.
func TestOAuth2DifferentTokenRequestsAreNotShared(t *testing.T) {
	t.Parallel()
	asked, over := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/token" {
			return
		}
		if calls.Add(1) == 1 {
			close(asked)
			<-over
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"access_token":"token","expires_in":0}`) // is not kept
	})
	defer close(over)
	types := s.secretTypes(t)
	begin := func(more, auth string) <-chan error {
		p, details := compile(t, types, "http-request", strings.ReplaceAll(
			`{"url":"URL/"`+more+`,"auth":{"type":"oauth2ClientCredentials","secret":"key","tokenUrl":"URL/token","clientId":"c"`+auth+`}}`, "URL", s.URL))
		require.Empty(t, details)
		call, ended := callWith(t, `{}`), make(chan error, 1)
		go func() {
			_, err := p.Run(t.Context(), call)
			ended <- err
		}()
		return ended
	}
	const inBody = `,"clientAuth":"body"`
	begin("", inBody)
	<-asked
	for name, ended := range map[string]<-chan error{
		"who authenticates otherwise": begin("", ""), "who waits for less": begin(`,"timeoutMs":30000`, inBody), "who tries less": begin(`,"method":"POST"`, inBody),
	} {
		select {
		case err := <-ended:
			require.NoError(t, err, name)
		case <-time.After(10 * time.Second):
			require.Fail(t, "one waits for who asks otherwise", name)
		}
	}
}

func TestOAuth2InvalidTokenResponse(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{`{}`, `x`, `{"access_token":""}`, `{"access_token":"a","token_type":"mac"}`} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
		p := s.secretive(t, `{"url":"URL/","auth":{"type":"oauth2ClientCredentials","secret":"key","tokenUrl":"URL/token","clientId":"c","clientAuth":"body"}}`)
		failed := failing(t, p, `{}`)
		require.Equal(t, workflow.CodeExternalService, failed.Code, answer)
		require.Contains(t, s.all()[0].body, "client_secret=hunter2+%26+more")
		require.Len(t, s.all(), 1)
	}
}

func TestOAuth2ErrorStatusRetryable(t *testing.T) {
	t.Parallel()
	for status, isRetryable := range map[int]bool{429: true, 500: true, 503: true, 400: false, 401: false} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		p := s.secretive(t, `{"url":"URL/","auth":{"type":"oauth2ClientCredentials","secret":"key","tokenUrl":"URL/token","clientId":"c"}}`)
		require.Equal(t, isRetryable, failing(t, p, `{}`).Retryable, status)
	}
}

func TestSecretsAreMaskedInResults(t *testing.T) {
	t.Parallel()
	pair := base64.StdEncoding.EncodeToString([]byte("u:" + hunter))
	echo := map[string]string{
		"plain": hunter, "base64": base64.StdEncoding.EncodeToString([]byte(hunter)), "raw": base64.RawURLEncoding.EncodeToString([]byte(hunter)),
		"query": url.QueryEscape(hunter), "path": url.PathEscape(hunter), "pair": "Basic " + pair, hunter: "name",
	}
	var members []string
	for name, value := range echo {
		members = append(members, fmt.Sprintf("%q:%q", name, "<"+value+">"))
	}
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Echo", hunter)
		_, _ = io.WriteString(w, `{`+strings.Join(members, ",")+`,"list":["`+hunter+`",1.10]}`)
	})
	fromHeader, _ := run(t, s.secretive(t, `{"url":"URL/","headers":{"X-A":{"secret":"key"}}}`), `{}`)
	require.NotContains(t, fromHeader, "hunter2")
	output, _ := run(t, s.secretive(t, `{"url":"URL/","auth":{"type":"basic","secret":"key","username":"u"}}`), `{}`)
	for _, secret := range []string{"hunter2", pair, base64.StdEncoding.EncodeToString([]byte(hunter)), base64.RawURLEncoding.EncodeToString([]byte(hunter))} {
		require.NotContains(t, output, secret)
	}
	require.Contains(t, output, `"plain":"<[redacted]>"`)
	require.Contains(t, output, `"list":["[redacted]",1.10]`)
}

// TestRedactorMasksEncodedForms checks that the redactor finds a secret in every form in which
// a service repeats it, and that other text stays.
func TestRedactorMasksEncodedForms(t *testing.T) {
	t.Parallel()
	const secret = `p"a\ss<wé>/+& word`
	var hidden redactor
	hidden.hide(secret)
	quoted, err := json.Marshal(secret)
	require.NoError(t, err)
	query := url.QueryEscape(secret)
	lower := regexp.MustCompile(`%..`).ReplaceAllStringFunc(query, strings.ToLower)
	for name, text := range map[string]string{
		"spaces as %20":   strings.ReplaceAll(query, "+", "%20"),
		"small digits":    lower,
		"JSON for HTML":   string(quoted[1 : len(quoted)-1]),
		"JSON":            `p\"a\\ss<wé>/+& word`,
		"JSON with \\/":   `p\"a\\ss<wé>\/+& word`,
		"HTML":            html.EscapeString(secret),
		"padded base64":   base64.URLEncoding.EncodeToString([]byte(secret)),
		"unpadded base64": base64.RawStdEncoding.EncodeToString([]byte(secret)),
	} {
		require.Equal(t, "<"+redacted+">", hidden.apply("<"+text+">"), name)
	}
	for _, alphabet := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
		for _, before := range []string{"", "u", "u:", "u:v", "user"} {
			clean, ok := hidden.apply(alphabet.EncodeToString([]byte(before + secret + "…"))).(string)
			require.True(t, ok)
			require.Contains(t, clean, redacted, before)
			require.Less(t, len(clean), len(before)*2+len(redacted)+12, "little is left of %q", clean)
		}
	}
	require.Equal(t, "password", hidden.apply("password"))

	hidden.hide("12345678")
	for text, want := range map[string]any{"12345678": redacted, "-1234567800": "-" + redacted + "00", "1.50": json.Number("1.50")} {
		require.Equal(t, want, hidden.apply(json.Number(text)), text)
	}
}

func TestHTTPRequestRedirects(t *testing.T) {
	t.Parallel()
	elsewhere := serve(t, ok)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/once":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/away":
			http.Redirect(w, r, elsewhere.URL+"/end", http.StatusTemporaryRedirect)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		case "/file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		}
	})
	auth := `,"auth":{"type":"apiKey","secret":"key"},"headers":{"X-Plain":"a"}`
	run(t, s.secretive(t, `{"url":"URL/once","followRedirects":1`+auth+`}`), `{}`)
	require.Equal(t, hunter, s.last(t).header.Get("X-Api-Key"))
	run(t, s.secretive(t, `{"url":"URL/away","followRedirects":1`+auth+`}`), `{}`)
	require.Empty(t, elsewhere.last(t).header.Get("X-Api-Key"))
	require.Empty(t, elsewhere.last(t).header.Get("X-Plain"))
	require.Equal(t, "e1/t", elsewhere.last(t).header.Get("Idempotency-Key"))
	for _, config := range []string{`{"url":"URL/once"}`, `{"url":"URL/round","followRedirects":3}`} {
		failed := failing(t, s.secretive(t, config), `{}`)
		require.Equal(t, http.StatusFound, failed.StatusCode)
	}
	failed := failing(t, s.secretive(t, `{"url":"URL/file","followRedirects":3}`), `{}`)
	require.Equal(t, workflow.CodeExternalService, failed.Code)
}

func TestHTTPRequestBodies(t *testing.T) {
	t.Parallel()
	s := serve(t, ok)
	_, err := s.request(t, `{"url":"URL/","method":"POST","bodyForm":{"a":"x y","b":["{{ input.n }}",2],"c":"{{ input.none }}"}}`).Run(t.Context(), callWith(t, `{"n":1.10}`))
	require.NoError(t, err)
	require.Equal(t, "a=x%20y&b=1.10&b=2", s.last(t).body)
	require.Equal(t, "application/x-www-form-urlencoded", s.last(t).header.Get("Content-Type"))
	p := s.request(t, `{"url":"URL/","method":"PUT","bodyBase64":"{{ input.file }}","headers":{"Content-Type":"image/png"}}`)
	_, err = p.Run(t.Context(), callWith(t, `{"file":"AAH/"}`))
	require.NoError(t, err)
	require.Equal(t, "\x00\x01\xff", s.last(t).body)
	require.Equal(t, "image/png", s.last(t).header.Get("Content-Type"))
	_, err = p.Run(t.Context(), callWith(t, `{"file":"not base64"}`))
	var failed *workflow.TaskError
	require.True(t, errors.As(err, &failed))
	require.Equal(t, codeInvalidRequest, failed.Code)
}
