package batch_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// Items that wait hold nothing that others need: more of them begin than are
// enqueued at a time where items run, and all can be signalled or cancelled.
func TestItemsThatWaitKeepNoneFromBeginning(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, `{"name": "Wait", "alias": "wait", "executionMode": "async", "inputSchema": {"type": "object"},
		"tasks": [{"id": "approved", "type": "wait-for-signal", "config": {}}], "edges": []}`)
	const items = 2100
	id := start(t, c, "wait", ids(many(items)...))
	at := "/v1/execution-batches/" + id
	require.Eventually(t, func() bool {
		return s.Pool.QueryRow(t.Context(), "SELECT 1 FROM executions WHERE status = 'running' AND lease_token IS NULL HAVING count(*) = $1", items).Scan(new(int)) == nil
	}, waitMax, tick)
	last := c.Get(t, at+"/items?per-page=1&page="+fmt.Sprint(items)).Expect(http.StatusOK).Text("data[0].executionId")
	c.Post(t, "/v1/executions/"+last+"/signals", map[string]any{"taskId": "approved", "payload": map[string]any{"by": "Maria"}}).Expect(http.StatusAccepted)
	until(t, c, id, func(r record) bool { return r.State.Summary.Completed == 1 })
	c.Post(t, at+"/cancel", nil).Expect(http.StatusOK)
	r := until(t, c, id, func(r record) bool { return r.Status == "cancelled" })
	require.Equal(t, [4]int{items, 1, items - 1, 0}, counts(r))
}
