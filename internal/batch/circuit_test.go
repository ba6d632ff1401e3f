package batch_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// A batch whose target is down waits for it, says so, and loses no item to it.
func TestBatchWaitsForItsTarget(t *testing.T) {
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
