package api_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/api"
	"tranche/internal/httpapi"
)

func TestHealthOnly(t *testing.T) {
	t.Parallel()
	s := api.New(api.Config{HTTP: httpapi.Config{Log: slog.New(slog.DiscardHandler), Clock: time.Now}, HealthOnly: true})
	for path, status := range map[string]int{
		"/healthz": http.StatusOK, "/readyz": http.StatusOK,
		"/v2/workflows": http.StatusNotFound, "/docs/": http.StatusNotFound, "/openapi.json": http.StatusNotFound,
	} {
		require.Equal(t, status, get(t, s, path).Code, path)
	}
}

func TestReadinessReportsPartAndLogsCause(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := api.New(api.Config{
		HTTP:  httpapi.Config{Log: slog.New(slog.NewJSONHandler(&log, nil)), Clock: time.Now},
		Ready: map[string]func(context.Context) error{"part": func(context.Context) error { return errors.New("s3cret") }},
	})
	answer := get(t, s, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, answer.Code)
	require.Equal(t, "2", answer.Header().Get("Retry-After"))
	require.Contains(t, answer.Body.String(), `"field":"part"`)
	require.NotContains(t, answer.Body.String(), "s3cret")
	require.Contains(t, log.String(), "s3cret")
}

func get(t *testing.T, s *api.Server, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w
}
