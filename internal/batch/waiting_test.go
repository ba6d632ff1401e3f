package batch_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/server"
)

// More waiting items can be started than fit into the window of running items. Waiting items are
// cancelled too.
func TestWaitingItemsDelayNoOthers(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	publish(t, c, `{"name": "Wait", "alias": "wait", "executionMode": "async", "inputSchema": {"type": "object"},
		"tasks": [{"id": "approved", "type": "wait-for-signal", "config": {}}], "edges": []}`)
	const items, begun = 2100, 210
	b := stagesOf(t, s, c, tenant.ID, start(t, c, "wait", ids(many(items)...)))
	require.NoError(t, b.ingester.PreProcess(t.Context(), b.key(), 1))
	runs := b.newRuns(t)
	require.Len(t, runs, items)
	var group sync.WaitGroup
	for _, run := range runs[:begun] {
		group.Go(func() {
			_, err := b.runner.RunItems(t.Context(), run)
			require.NoError(t, err)
		})
	}
	group.Wait()
	require.Equal(t, begun, b.count(t, "SELECT count(*) FROM executions WHERE status = 'running' AND lease_token IS NULL"))
	c.Post(t, "/v1/execution-batches/"+b.id.String()+"/cancel", nil).Expect(http.StatusOK)
	done, err := b.runner.CancelItems(t.Context(), b.key())
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, [4]int{items, 0, items, 0}, counts(b.record(t)))
}

// Waiting items with large states are cancelled in pages that fit into a statement.
func TestCancelWaitingItemsWithLargeStates(t *testing.T) {
	t.Parallel()
	const (
		items  = 20
		answer = 1 << 20 // a statement takes a few such states
	)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`"` + strings.Repeat("x", answer) + `"`))
	}))
	t.Cleanup(target.Close)
	s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	publish(t, c, `{"name": "Wait", "alias": "wait", "executionMode": "async", "inputSchema": {"type": "object"},
		"tasks": [`+request("report", "GET", target.URL)+`, {"id": "approved", "type": "wait-for-signal", "config": {}}],
		"edges": [{"source": "start", "target": "report"}, {"source": "report", "target": "approved"}]}`)
	b := stagesOf(t, s, c, tenant.ID, start(t, c, "wait", ids(many(items)...)))
	require.NoError(t, b.ingester.PreProcess(t.Context(), b.key(), 1))
	for _, run := range b.newRuns(t) {
		_, err := b.runner.RunItems(t.Context(), run)
		require.NoError(t, err)
	}
	require.Equal(t, items, b.count(t, "SELECT count(*) FROM executions WHERE status = 'running' AND lease_token IS NULL"))
	c.Post(t, "/v1/execution-batches/"+b.id.String()+"/cancel", nil).Expect(http.StatusOK)
	_, err := b.Pool.Exec(t.Context(), "ALTER TABLE execution_batches ADD CONSTRAINT refused CHECK (items_failed <= 8)")
	require.NoError(t, err)
	_, err = b.runner.CancelItems(t.Context(), b.key())
	require.ErrorContains(t, err, "refused")
	require.Equal(t, 8, b.record(t).State.Summary.Failed)
	_, err = b.Pool.Exec(t.Context(), "ALTER TABLE execution_batches DROP CONSTRAINT refused")
	require.NoError(t, err)
	done, err := b.runner.CancelItems(t.Context(), b.key())
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, [4]int{items, 0, items, 0}, counts(b.record(t)))
}
