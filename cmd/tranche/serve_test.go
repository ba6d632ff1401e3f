package main_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/secret"
	"tranche/internal/targettest"
)

const tokenPath = "/identity/resources/auth/v1/api-token"

// answer is a response with its decoded body.
type answer struct {
	status int
	header http.Header
	body   map[string]any
}

func call(t *testing.T, method, url, token, body string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	got := answer{status: response.StatusCode, header: response.Header}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&got.body))
	return got
}

// accessToken creates a tenant with rate limits and a client with commands, and returns
// a token that it obtains over HTTP. Limits have the form category=limit.
func (e environment) accessToken(t *testing.T, url, tenant string, limits ...string) string {
	t.Helper()
	e.ok(t, "tenant", "create", tenant)
	for _, limit := range limits {
		e.ok(t, "tenant", "limits", tenant, "--set", limit)
	}
	credentials := e.ok(t, "client", "create", "--tenant", tenant, "--role", "admin", "--output", "json")
	got := call(t, http.MethodPost, url+tokenPath, "", credentials)
	require.Equal(t, http.StatusOK, got.status)
	token, ok := got.body["accessToken"].(string)
	require.True(t, ok)
	return token
}

// The database URL and the master key can be in files. The log is JSON, contains no key,
// and names the exceptions of the egress guard.
func TestServeWithSecretsFromFiles(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), secret.GenerateKey()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		return path
	}
	e := environment{
		"DATABASE_URL_FILE=" + write("url", pgtest.URL(t)),
		"TRANCHE_MASTER_KEY_FILE=" + write("key", key),
		"TRANCHE_EGRESS_ALLOW=127.0.0.1/32:8081,10.0.0.0/8",
	}
	server := e.serve(t)
	e.accessToken(t, server.url, "acme")
	require.Equal(t, http.StatusOK, call(t, http.MethodGet, server.url+"/healthz", "", "").status)
	require.Equal(t, http.StatusOK, call(t, http.MethodGet, server.url+"/readyz", "", "").status)

	for line := range strings.Lines(server.stderr.String()) {
		require.True(t, json.Valid([]byte(line)), "logs are JSON: %s", line)
	}
	require.Contains(t, server.stderr.String(), "127.0.0.1/32:8081,10.0.0.0/8")
	require.NotContains(t, server.stderr.String(), key)
	server.stop(t)
}

func TestTokenOverHTTP(t *testing.T) {
	t.Parallel()
	e := onDatabase(pgtest.URL(t))
	server := e.serve(t)
	e.ok(t, "tenant", "create", "acme")
	credentials := e.ok(t, "client", "create", "--tenant", "acme", "--role", "admin", "--output", "json")

	got := call(t, http.MethodPost, server.url+tokenPath, "", credentials)
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, "no-store", got.header.Get("Cache-Control"))
	require.Len(t, got.body, 4)
	require.Regexp(t, `^[\w-]+\.[\w-]+\.[\w-]+$`, got.body["accessToken"])
	require.Regexp(t, `^tranche_refresh_`, got.body["refreshToken"])
	require.InDelta(t, 86400, got.body["expiresIn"], 0)
	text, ok := got.body["expiresAt"].(string)
	require.True(t, ok)
	expiresAt, err := time.Parse(http.TimeFormat, text)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(24*time.Hour), expiresAt, time.Minute)

	keys := call(t, http.MethodGet, server.url+"/.well-known/jwks.json", "", "")
	require.Equal(t, http.StatusOK, keys.status)
	require.Contains(t, keys.header.Get("Cache-Control"), "max-age")
	require.Len(t, keys.body["keys"], 1)

	var c map[string]string
	require.NoError(t, json.Unmarshal([]byte(credentials), &c))
	for name, body := range map[string]struct {
		text   string
		status int
		code   string
	}{
		"wrong secret":   {`{"clientId":"` + c["clientId"] + `","secret":"tranche_secret_x"}`, 401, "UNAUTHORIZED"},
		"unknown client": {`{"clientId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","secret":"` + c["secret"] + `"}`, 401, "UNAUTHORIZED"},
		"not an id":      {`{"clientId":"acme","secret":"` + c["secret"] + `"}`, 401, "UNAUTHORIZED"},
		"no secret":      {`{"clientId":"` + c["clientId"] + `"}`, 400, "VALIDATION_ERROR"},
		"empty secret":   {`{"clientId":"` + c["clientId"] + `","secret":""}`, 400, "VALIDATION_ERROR"},
		"number":         {`{"clientId":1,"secret":"x"}`, 400, "VALIDATION_ERROR"},
		"unknown member": {`{"clientId":"x","secret":"x","grant":"y"}`, 400, "VALIDATION_ERROR"},
		"duplicate":      {`{"clientId":"x","clientId":"y","secret":"x"}`, 400, "VALIDATION_ERROR"},
		"NUL":            {`{"clientId":"x\u0000","secret":"x"}`, 400, "VALIDATION_ERROR"},
		"array":          {`[]`, 400, "VALIDATION_ERROR"},
		"not JSON":       {`clientId=x`, 400, "VALIDATION_ERROR"},
		"nothing":        {``, 400, "VALIDATION_ERROR"},
		"very long":      {`{"clientId":"x","secret":"` + strings.Repeat("x", 256) + `"}`, 400, "VALIDATION_ERROR"},
	} {
		got := call(t, http.MethodPost, server.url+tokenPath, "", body.text)
		require.Equal(t, body.status, got.status, name)
		require.Equal(t, body.code, got.body["code"], name)
		require.Equal(t, got.header.Get("X-Request-Id"), got.body["requestId"], name)
	}
	require.NotContains(t, server.stderr.String(), c["secret"])
	server.stop(t)
}

func TestRoles(t *testing.T) {
	t.Parallel()
	e := onDatabase(pgtest.URL(t))
	worker, front := e.serve(t, "--role", "worker", "--metrics-addr", "127.0.0.1:0"), e.with("TRANCHE_ROLE=api").serve(t)
	for _, server := range []*running{worker, front} {
		require.Equal(t, http.StatusOK, call(t, http.MethodGet, server.url+"/healthz", "", "").status)
		require.Equal(t, http.StatusOK, call(t, http.MethodGet, server.url+"/readyz", "", "").status)
	}
	e.accessToken(t, front.url, "acme")
	require.Equal(t, http.StatusNotFound, call(t, http.MethodPost, worker.url+tokenPath, "", `{}`).status)

	where := regexp.MustCompile(`http://127\.0\.0\.1:\d+/metrics`).FindString(worker.stderr.String())
	require.NotEmpty(t, where)
	require.NotContains(t, where, worker.url)
	response, err := http.Get(where)
	require.NoError(t, err)
	defer response.Body.Close()
	shown, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	metrics := string(shown)
	require.Contains(t, metrics, `tranche_processes_alive{role="api"} 1`)
	require.Contains(t, metrics, `tranche_processes_alive{role="worker"} 1`)
	require.Equal(t, http.StatusNotFound, call(t, http.MethodGet, worker.url+"/metrics", "", "").status)
	require.NotContains(t, front.stderr.String(), "/metrics")
	worker.stop(t)
	front.stop(t)
}

func TestOwnServer(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	e := environment{"TRANCHE_DATA_DIR=" + dir}
	e.ok(t, "tenant", "create", "early") // runs the server for its own duration

	first := e.serve(t)
	info, err := os.Stat(filepath.Join(dir, "master.key"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	token := e.accessToken(t, first.url, "acme")

	second := e.serve(t) // uses the running server
	require.NotEqual(t, first.url, second.url)
	e.accessToken(t, second.url, "other")
	require.Equal(t, 1, e.run(t, "tenant", "create", "early").status)

	first.stop(t) // the second process takes over the server of the first
	require.Eventually(t, func() bool {
		return call(t, http.MethodGet, second.url+"/readyz", "", "").status == http.StatusOK
	}, time.Minute, 100*time.Millisecond)
	e.accessToken(t, second.url, "late")
	second.stop(t)

	third := e.serve(t)
	require.NotEmpty(t, token)
	require.Equal(t, 1, e.run(t, "tenant", "create", "late").status, "the data remain")
	third.stop(t)
}

// publishScoring publishes a workflow that calls an address, and returns the path that
// executes it.
func publishScoring(t *testing.T, base, token, target string) string {
	t.Helper()
	made := call(t, http.MethodPost, base+"/v2/workflows", token, `{"name":"Bureau","alias":"bureau","tasks":[
		{"id":"score","type":"http-request","name":"Score","config":{"method":"GET","url":"`+target+`"}}]}`)
	require.Equal(t, http.StatusCreated, made.status, made.body)
	published := call(t, http.MethodPost, base+"/v2/workflows/"+made.body["id"].(string)+"/publish", token, "")
	require.Equal(t, http.StatusOK, published.status, published.body)
	return "/v1/workflows/bureau/v1/execute"
}

// A process that is stopped finishes its requests.
func TestStopDuringRequest(t *testing.T) {
	t.Parallel()
	target := targettest.New(t)
	release := target.Hold()
	e := onDatabase(pgtest.URL(t)).with("TRANCHE_EGRESS_ALLOW=127.0.0.1/32")
	server := e.serve(t)
	token := e.accessToken(t, server.url, "acme")
	path := publishScoring(t, server.url, token, target.URL)
	answered := make(chan answer)
	go func() { answered <- call(t, http.MethodPost, server.url+path, token, `{}`) }()
	target.Wait(1)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		server.stop(t)
	}()
	server.awaitLog(t, `"msg":"stopping"`)
	release()
	got := <-answered
	require.Equal(t, http.StatusOK, got.status, got.body)
	require.Equal(t, true, got.body["isSuccess"], got.body)
	<-stopped
}
