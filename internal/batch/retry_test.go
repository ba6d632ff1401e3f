package batch_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/server"
)

// A batch whose executions were dropped by the retention is not retried. It keeps its output.
func TestRetryWithoutKeptItems(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, `{"name": "Echo", "alias": "echo", "inputSchema": {"type": "object", "properties": {"id": {"type": "string", "maxLength": 1}}},
		"tasks": [{"id": "echo", "type": "transform", "config": {"fields": {"id": "{{ input.id }}"}}}]}`)
	id := start(t, c, "echo", ids("a", "refused"))
	ended := follow(t, c, id)
	_, err := s.Pool.Exec(t.Context(), `DELETE FROM executions WHERE item_index = 0`)
	require.NoError(t, err)
	for _, mode := range []string{"post_processing", "failed_items"} {
		c.Post(t, "/v1/execution-batches/"+id+"/retry", map[string]any{"retryMode": mode}).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	}
	require.Equal(t, ended, follow(t, c, id))
	require.Len(t, table(t, files(t, c, *ended.Outputs.Post.PackageID)["results.csv"]), 2)
}

// A batch that was cancelled while it was read is not retried: it would complete without the
// rows that were not read.
func TestRetryOfPartlyReadBatch(t *testing.T) {
	t.Parallel()
	s := newStages(t, 4_000)
	_, err := s.Pool.Exec(t.Context(), "ALTER TABLE execution_batches ADD CONSTRAINT refused CHECK (items_read <= 1500)") // a chunk has at least 1,000
	require.NoError(t, err)
	require.ErrorContains(t, s.ingester.PreProcess(t.Context(), s.key(), 1), "refused")
	at := "/v1/execution-batches/" + s.id.String()
	s.caller.Post(t, at+"/cancel", nil).Expect(http.StatusOK)
	done, err := s.runner.CancelItems(t.Context(), s.key())
	require.NoError(t, err)
	require.True(t, done)
	require.NoError(t, s.output.PostProcess(t.Context(), s.key()))
	r := s.record(t)
	require.Equal(t, "cancelled", r.Status)
	require.Positive(t, r.State.Summary.Failed)
	for _, mode := range []string{"failed_items", "unsuccessful_sources_items", "failed_and_unsuccessful_sources_items"} {
		refused := s.caller.Post(t, at+"/retry", map[string]any{"retryMode": mode}).Expect(http.StatusConflict)
		require.Contains(t, refused.Text("message"), "before all of its items were read")
	}
	require.Equal(t, "cancelled", s.record(t).Status)
}

// Items with large states are prepared a few at a time, each once. After an interruption the
// others follow. They keep their results.
func TestRetryOfLargeStates(t *testing.T) {
	t.Parallel()
	const (
		items  = 20
		answer = 1 << 20 // a statement takes three such states
	)
	var mu sync.Mutex
	calls, isBroken := map[string]int{}, true
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		calls[r.URL.Path]++
		isBroken := isBroken
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/report":
			_, _ = w.Write([]byte(`"` + strings.Repeat("x", answer) + `"`))
		case isBroken:
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = w.Write([]byte(`1`))
		}
	}))
	t.Cleanup(target.Close)
	s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	publish(t, c, `{"name": "Bureau", "alias": "bureau", "inputSchema": {"type": "object", "properties": {"id": {"type": "string", "maxLength": 6}}},
		"tasks": [`+request("report", "GET", target.URL)+`, `+request("score", "GET", target.URL)+`],
		"edges": [{"source": "start", "target": "report"}, {"source": "report", "target": "score"}]}`)
	some := slices.Insert(many(items), items/2, "refused")
	b := stagesOf(t, s, c, tenant.ID, start(t, c, "bureau", ids(some...)))
	b.live(t)
	run := func() {
		for runs := b.newRuns(t); len(runs) > 0; runs = b.newRuns(t) {
			for _, run := range runs {
				_, err := b.runner.RunItems(t.Context(), run)
				require.NoError(t, err)
			}
		}
		require.NoError(t, b.output.PostProcess(t.Context(), b.key()))
	}
	require.NoError(t, b.ingester.PreProcess(t.Context(), b.key(), 1))
	run()
	require.Equal(t, [4]int{items + 1, 0, items + 1, 0}, counts(b.record(t)))

	mu.Lock()
	isBroken = false
	mu.Unlock()
	retry(t, c, b.id.String(), map[string]any{"retryMode": "failed_items"})
	const ready = "SELECT count(*) FROM executions WHERE status = 'pending' AND attempt = 2 AND tasks_completed = 1"
	for _, chunk := range []struct{ until, ready int }{{3, 3}, {13, 12}} { // the next statement fails
		_, err := b.Pool.Exec(t.Context(), fmt.Sprintf("ALTER TABLE execution_batches ADD CONSTRAINT refused CHECK (retry_from <= %d)", chunk.until))
		require.NoError(t, err)
		require.ErrorContains(t, b.batches.RetryItems(t.Context(), b.key()), "refused")
		require.Equal(t, chunk.ready, b.count(t, ready))
		require.Equal(t, chunk.until, b.count(t, "SELECT retry_from FROM execution_batches"))
		_, err = b.Pool.Exec(t.Context(), "ALTER TABLE execution_batches DROP CONSTRAINT refused")
		require.NoError(t, err)
	}
	require.NoError(t, b.batches.RetryItems(t.Context(), b.key()))
	require.Equal(t, items, b.count(t, ready))
	require.Equal(t, items, b.record(t).State.Summary.Pending)
	require.NoError(t, b.batches.RetryItems(t.Context(), b.key()), "once more")
	run()
	r := b.record(t)
	require.Equal(t, "complete", r.Status)
	require.Equal(t, [4]int{items + 1, items, 1, 0}, counts(r))
	require.Equal(t, items+1, b.count(t, "SELECT count(*) FROM executions WHERE attempt = 2"))
	require.Equal(t, map[string]int{"/report": items, "/score": 2 * items}, calls)
}
