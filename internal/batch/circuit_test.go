package batch_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/batch/runner"
	"tranche/internal/identity"
	"tranche/internal/server"
	"tranche/jobs"
)

// A batch with an unavailable target waits for it, has a notice, and fails no item.
func TestBatchWaitsForTarget(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, fmt.Sprintf(`{"name": "Down", "alias": "down", "inputSchema": {"type": "object"},
		"tasks": [{"id": "score", "type": "http-request", "config": {"method": "POST", "url": "http://%s/", "retry": {"maxAttempts": 2, "initialDelayMs": 10}}}], "edges": []}`, address))
	id := start(t, c, "down", ids(many(20)...))
	at := "/v1/execution-batches/" + id
	require.Eventually(t, func() bool { return c.Get(t, at).Value("notices[0]") != nil }, waitMax, tick)
	record := c.Get(t, at).Expect(http.StatusOK)
	require.Equal(t, "TARGET_UNREACHABLE", record.Text("notices[0].code"))
	require.Equal(t, address, record.Text("notices[0].source"))
	require.Equal(t, "processing", record.Text("status"))

	listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) }))
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	r := follow(t, c, id)
	require.Equal(t, "complete", r.Status)
	require.Less(t, r.State.Summary.Failed, 5, "only what failed before the circuit opened")
	require.Equal(t, 20, r.State.Summary.Completed+r.State.Summary.Failed)
	require.Len(t, c.Get(t, at).Value("notices"), 1)
}

// If a target is unavailable for hours, the items fail with a message, so that the batch ends.
func TestItemsFailAfterPatience(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	publish(t, c, fmt.Sprintf(`{"name": "Down", "alias": "down", "inputSchema": {"type": "object"},
		"tasks": [{"id": "score", "type": "http-request", "config": {"method": "POST", "url": "http://%s/", "retry": {"maxAttempts": 1}}}], "edges": []}`, address))
	const items = 10
	b := stagesOf(t, s, c, tenant.ID, start(t, c, "down", ids(many(items)...)))
	require.NoError(t, b.ingester.PreProcess(t.Context(), b.key(), 1))
	runs := b.newRuns(t)
	require.Len(t, runs, 1, "the items share a chunk")
	run := func() (waiting []jobs.BatchItemRun) {
		for _, item := range runs {
			_, err := b.runner.RunItems(t.Context(), item)
			if down, ok := errors.AsType[*runner.CircuitOpenError](err); ok {
				require.LessOrEqual(t, down.Wait, time.Minute)
				waiting = append(waiting, item)
				continue
			}
			require.NoError(t, err)
		}
		return waiting
	}
	const before = 4 // fail before it is clear that it is the target
	require.NotEmpty(t, run())
	b.ahead = 5 * time.Hour
	require.NotEmpty(t, run())
	require.Equal(t, [4]int{items, 0, before, 0}, counts(b.record(t)))
	b.ahead = 7 * time.Hour
	require.Empty(t, run())
	require.NoError(t, b.output.PostProcess(t.Context(), b.key()))
	r := b.record(t)
	require.Equal(t, "complete", r.Status)
	require.Equal(t, [4]int{items, 0, items, 0}, counts(r))
	at := "/v1/execution-batches/" + b.id.String()
	require.Len(t, c.Get(t, at).Value("notices"), 1)
	last := c.Get(t, at+"/items?status=failed").Expect(http.StatusOK).Text(fmt.Sprintf("data[%d].executionId", items-1))
	output := c.Get(t, "/v1/executions/"+last+"/output").Expect(http.StatusOK)
	require.Equal(t, "EXTERNAL_SERVICE_ERROR", output.Text("errorSubCode"))
	require.Contains(t, output.Text("errorMessage"), "task score failed: the service could not be reached")
}
