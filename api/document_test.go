package api_test

import (
	"context"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"tranche/api"
	"tranche/internal/fault"
	"tranche/internal/identity"
)

var update = flag.Bool("update", false, "write the golden files anew")

func newServer(t *testing.T) *api.Server {
	t.Helper()
	return api.New(api.Config{
		Log:   slog.New(slog.DiscardHandler),
		Clock: time.Now,
		Verify: func(context.Context, string) (identity.Principal, error) {
			return identity.Principal{}, fault.New(fault.Unauthorized, "the token is not valid")
		},
	})
}

func TestOpenAPIGolden(t *testing.T) {
	t.Parallel()
	const golden = "openapi.json"
	got := newServer(t).Document()
	if *update {
		require.NoError(t, os.WriteFile(golden, got, 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err, "run make openapi")
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Fatalf("openapi.json is not what the code declares; run make openapi (-file +code):\n%s", diff)
	}
}

func TestSmoke(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, target := range []string{"GET /healthz", "POST /healthz", "GET /nothing", "GET /healthz?x=1", "GET /docs/", "GET /readyz"} {
		w := httptest.NewRecorder()
		m, p, _ := cutSpace(target)
		s.ServeHTTP(w, httptest.NewRequest(m, p, http.NoBody))
		t.Log(target, w.Code, w.Header(), w.Body.String())
	}
}

func cutSpace(s string) (string, string, bool) {
	for i := range s {
		if s[i] == ' ' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}
