package batch_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/cmd/tranche/service"
	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// Items that wait hold nothing that others need: more of them may begin than are
// enqueued at a time where items run, and those that wait are cancelled as well.
func TestItemsThatWaitKeepNoneFromBeginning(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, func(c *service.Config) { c.Role = service.RoleAPI })
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	publish(t, c, `{"name": "Wait", "alias": "wait", "executionMode": "async", "inputSchema": {"type": "object"},
		"tasks": [{"id": "approved", "type": "wait-for-signal", "config": {}}], "edges": []}`)
	const items, begun = 2100, 210
	b := stagesOf(t, s, c, tenant.ID, start(t, c, "wait", ids(many(items)...)))
	require.NoError(t, b.batches.PreProcess(t.Context(), b.tenantID, b.id))
	runs := b.newRuns(t)
	require.Len(t, runs, items)
	var group sync.WaitGroup
	for _, run := range runs[:begun] {
		group.Go(func() {
			_, err := b.batches.RunItems(t.Context(), run)
			require.NoError(t, err)
		})
	}
	group.Wait()
	require.Equal(t, begun, b.count(t, "SELECT count(*) FROM executions WHERE status = 'running' AND lease_token IS NULL"))
	c.Post(t, "/v1/execution-batches/"+b.id.String()+"/cancel", nil).Expect(http.StatusOK)
	done, err := b.batches.CancelItems(t.Context(), b.tenantID, b.id)
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, [4]int{items, 0, items, 0}, counts(b.record(t)))
}
