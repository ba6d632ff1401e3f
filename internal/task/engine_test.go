package task

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/egress"
	"tranche/internal/engine"
	"tranche/internal/workflow"
)

// drive runs a plan to its end.
func drive(t *testing.T, p *workflow.Plan) *engine.Outcome {
	t.Helper()
	runner := &engine.Runner{Clock: time.Now, Log: slog.New(slog.DiscardHandler)}
	verdict, err := runner.Drive(t.Context(), &engine.Run{
		Plan: p, State: engine.NewState(p, "e1"), Input: map[string]any{},
	}, func(context.Context, *engine.State) error { return nil })
	require.NoError(t, err)
	require.NotNil(t, verdict.Outcome)
	return verdict.Outcome
}

// sequence answers with one status after the other, the last one again and again.
func sequence(t *testing.T, statuses ...int) *target {
	t.Helper()
	var s *target
	s = serve(t, func(w http.ResponseWriter, _ *http.Request) {
		status := statuses[min(len(s.all()), len(statuses))-1]
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"score":700}`)
	})
	return s
}

func (s *target) plan(t *testing.T, config string) *workflow.Plan {
	t.Helper()
	open, err := egress.ParseAllow(s.Listener.Addr().String())
	require.NoError(t, err)
	p, details := plan(t, Types(Ports{HTTP: egress.New(open)}),
		`[{"id":"score","type":"http-request","config":`+strings.ReplaceAll(config, "URL", s.URL)+`}]`, `[]`)
	require.Empty(t, details)
	return p
}

func TestRetriesShareTheirIdempotencyKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config   string
		statuses []int
		sent     int
		status   engine.Status
	}{
		{`{"url":"URL/","retry":{"initialDelayMs":1}}`, []int{500, 429, 200}, 3, engine.StatusCompleted},
		{`{"url":"URL/","retry":{"initialDelayMs":1}}`, []int{500}, 3, engine.StatusFailed},
		{`{"url":"URL/","retry":{"initialDelayMs":1,"maxAttempts":5}}`, []int{503, 503, 503, 503, 200}, 5, engine.StatusCompleted},
		{`{"url":"URL/","retry":{"maxAttempts":1}}`, []int{500, 200}, 1, engine.StatusFailed},
		{`{"url":"URL/","retry":{"initialDelayMs":1}}`, []int{404, 200}, 1, engine.StatusFailed},
		{`{"url":"URL/","method":"POST","retry":{"initialDelayMs":1}}`, []int{503, 200}, 2, engine.StatusCompleted},
		{`{"url":"URL/","method":"POST","retry":{"initialDelayMs":1}}`, []int{500, 200}, 1, engine.StatusFailed},
		{`{"url":"URL/","method":"POST","retry":{"initialDelayMs":1,"retryOn":[500]}}`, []int{500, 200}, 2, engine.StatusCompleted},
		{`{"url":"URL/","retry":{"initialDelayMs":1,"retryOn":[418]}}`, []int{500, 200}, 1, engine.StatusFailed},
	} {
		s := sequence(t, c.statuses...)
		outcome := drive(t, s.plan(t, c.config))
		require.Equal(t, c.status, outcome.Status, c.config)
		sent := s.all()
		require.Len(t, sent, c.sent, c.config)
		for _, r := range sent {
			require.Equal(t, []string{"e1/score"}, r.header["Idempotency-Key"])
		}
		if c.status == engine.StatusFailed {
			require.Equal(t, 502, outcome.StatusCode)
			require.Contains(t, outcome.ErrorMessage, "the service answered with status")
		}
	}
}

func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	var s *target
	var second time.Time
	s = serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if len(s.all()) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		second = time.Now()
	})
	began := time.Now()
	outcome := drive(t, s.plan(t, `{"url":"URL/","retry":{"initialDelayMs":1}}`))
	require.Equal(t, engine.StatusCompleted, outcome.Status)
	require.GreaterOrEqual(t, second.Sub(began), time.Second)
}

func TestRunsStopWithTheirContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for kind, config := range map[string]string{
		"transform":      `{"fields":{"a":"{{ 1 + 1 }}"}}`,
		"decision-table": `{"inputs":[{}],"outputs":[{"name":"a"}],"rules":[{"when":["1 == 1"],"then":["1 + 1"]}]}`,
		"http-request":   `{"url":"http://10.0.0.1/"}`,
	} {
		_, err := program(t, kind, config).Run(ctx, callWith(t, `{}`))
		require.ErrorIs(t, err, context.Canceled, kind)
	}
}
