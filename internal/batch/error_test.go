package batch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/execution"
	"tranche/internal/identity"
	"tranche/internal/server"
)

// An item that failed with a database error continues when its job is repeated, while its
// process lives.
func TestItemsContinueAfterErrors(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]struct {
		last   string // task of the workflow
		table  string // that is away after the first call
		status string // of the item at the end
	}{
		"in a chunk": {`{"id": "last", "type": "http-request", "config": {"method": "GET", "url": "%s/last"}}`, "execution_payloads", "completed"},
		"recorded":   {`{"id": "last", "type": "wait-for-signal", "config": {}}`, "execution_signals", "running"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
			tenant := s.Tenant(t)
			c := tenant.As(t, identity.RoleAdmin)
			o := newTarget(t)
			publish(t, c, `{"name": "Break", "alias": "break", "executionMode": "async", "inputSchema": {"type": "object"},
				"tasks": [`+request("first", "GET", o.URL)+`, `+strings.ReplaceAll(broken.last, "%s", o.URL)+`],
				"edges": [{"source": "start", "target": "first"}, {"source": "first", "target": "last"}]}`)
			b := &calling{target: o, stages: stagesOf(t, s, c, tenant.ID, start(t, c, "break", ids("A")))}
			require.NoError(t, b.ingester.PreProcess(t.Context(), b.key(), 1))
			runs := b.newRuns(t)
			require.Len(t, runs, 1)
			b.live(t)
			b.hold()
			ended := make(chan error, 1)
			go func() {
				_, err := b.runner.RunItems(t.Context(), runs[0])
				ended <- err
			}()
			require.Eventually(t, func() bool { return o.count() == 1 }, waitMax, tick)
			_, err := b.Pool.Exec(t.Context(), "ALTER TABLE "+broken.table+" RENAME TO away")
			require.NoError(t, err)
			b.release()
			require.ErrorContains(t, <-ended, broken.table)
			_, err = b.Pool.Exec(t.Context(), "ALTER TABLE away RENAME TO "+broken.table)
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				holding, err := b.runner.RunItems(t.Context(), runs[0])
				require.NoError(t, err)
				return holding == execution.Held
			}, waitMax, tick)
			require.Equal(t, 1, b.count(t, "SELECT count(*) FROM executions WHERE lease_token IS NULL AND status = '"+broken.status+"'"))
		})
	}
}
