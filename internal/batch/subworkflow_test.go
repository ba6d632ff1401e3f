package batch_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/batch/runner"
	"tranche/internal/execution"
	"tranche/internal/identity"
	"tranche/internal/server"
)

// callsInner is a workflow that runs the latest version of the workflow inner.
const callsInner = `{"name": "Outer", "alias": "outer", "inputSchema": {"type": "object"},
	"tasks": [{"id": "sub", "type": "sub-workflow", "config": {"alias": "inner", "version": "latest", "input": "{{ input }}"}}], "edges": []}`

// inner is the first version of that workflow, with consecutive tasks.
func inner(tasks string) string {
	return `{"name": "Inner", "alias": "inner", "inputSchema": {"type": "object"}, "tasks": [` + tasks + `],
		"edges": [{"source": "start", "target": "first"}, {"source": "first", "target": "last"}]}`
}

// publishNext publishes the next version of the workflow inner, with one task.
func publishNext(t *testing.T, c *apitest.Caller, first, task string) {
	t.Helper()
	id := c.Post(t, "/v2/workflows/"+first+"/create-draft", nil).Expect(http.StatusCreated).Text("id")
	c.Put(t, "/v2/workflows/"+id, apitest.Raw(`{"tasks": [`+task+`], "edges": []}`)).Expect(http.StatusOK)
	c.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
}

func request(id, method, url string) string {
	return fmt.Sprintf(`{"id": %q, "type": "http-request", "config": {"method": %q, "url": "%s/%s?id={{ input.id }}", "retry": {"maxAttempts": 1}}}`, id, method, url, id)
}

// count returns the number of calls.
func (o *target) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.calls)
}

const transformNext = `{"id": "next", "type": "transform", "config": {"fields": {"version": "2"}}}`

// A retry continues with the version of a sub-workflow with which the item began, and repeats
// only failed tasks of it.
func TestRetryKeepsSubWorkflowVersions(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	o := newTarget(t)
	o.set("B/last")
	first := publish(t, c, inner(request("first", "GET", o.URL)+","+request("last", "GET", o.URL)))
	publish(t, c, callsInner)
	id := start(t, c, "outer", ids("A", "B"))
	require.Equal(t, [4]int{2, 1, 1, 0}, counts(follow(t, c, id)))
	require.Equal(t, []string{"A/first", "A/last", "B/first", "B/last"}, o.taken())

	publishNext(t, c, first, transformNext)
	o.set()
	retry(t, c, id, map[string]any{"retryMode": "failed_items"})
	require.Equal(t, [4]int{2, 2, 0, 0}, counts(follow(t, c, id)))
	require.Equal(t, []string{"B/last"}, o.taken())
	require.NotEqual(t, o.keys["B/last"][0], o.keys["B/last"][1], "the first call got its answer")
}

// A postponed item continues in the middle of its sub-workflow.
func TestPostponeKeepsSubWorkflowVersions(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	down := listener.Addr().String()
	require.NoError(t, listener.Close())
	s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	o := newTarget(t)
	first := publish(t, c, inner(request("first", "POST", o.URL)+","+request("last", "POST", "http://"+down)))
	publish(t, c, callsInner)
	const items = 20
	b := &calling{target: o, stages: stagesOf(t, s, c, tenant.ID, start(t, c, "outer", ids(many(items)...)))}
	require.NoError(t, b.ingester.PreProcess(t.Context(), b.key(), 1))
	b.runs = b.newRuns(t)
	require.Len(t, b.runs, 1, "chunks")
	b.hold()
	ended := make(chan error, 1)
	go func() {
		_, err := b.runner.RunItems(t.Context(), b.runs[0])
		ended <- err
	}()
	require.Eventually(t, func() bool { return o.count() == items }, waitMax, tick)
	publishNext(t, c, first, transformNext)
	b.release()
	require.ErrorAs(t, <-ended, new(*runner.CircuitOpenError))
	b.ahead = time.Minute // an item tries again, and is put off once more
	_, err = b.runner.RunItems(t.Context(), b.runs[0])
	require.ErrorAs(t, err, new(*runner.CircuitOpenError))
	r := b.record(t)
	require.Less(t, r.State.Summary.Failed, 5, "only what met the target before the circuit opened")

	listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", down)
	require.NoError(t, err)
	var calls atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		_, _ = w.Write([]byte(`{}`))
	}))
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	for err = errors.New("not yet run"); err != nil; {
		b.ahead += time.Minute
		if _, err = b.runner.RunItems(t.Context(), b.runs[0]); err != nil {
			require.ErrorAs(t, err, new(*runner.CircuitOpenError))
		}
		require.Less(t, b.ahead, 6*time.Hour, "what it gives an item to reach its target")
	}
	require.Equal(t, [4]int{items, items - r.State.Summary.Failed, r.State.Summary.Failed, 0}, counts(b.record(t)))
	require.EqualValues(t, items-r.State.Summary.Failed, calls.Load(), "of the version that the items began with")
	for call, keys := range o.keys {
		require.Len(t, keys, 1, "%s was answered and is not repeated", call)
	}
}

// If the latest version of a sub-workflow gets effects after a chunk was dispatched, its items
// run with effects.
func TestChunkGetsEffects(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	o := newTarget(t)
	first := publish(t, c, `{"name": "Inner", "alias": "inner", "inputSchema": {"type": "object"}, "tasks": [`+transformNext+`], "edges": []}`)
	publish(t, c, callsInner)
	b := stagesOf(t, s, c, tenant.ID, start(t, c, "outer", ids("A", "B", "C")))
	require.NoError(t, b.ingester.PreProcess(t.Context(), b.key(), 1))
	fed := b.newRuns(t)
	require.Len(t, fed, 1)
	publishNext(t, c, first, request("next", "GET", o.URL))

	held, err := b.runner.RunItems(t.Context(), fed[0])
	require.NoError(t, err)
	require.Equal(t, execution.Held, held)
	require.Equal(t, []string{"A/next", "B/next", "C/next"}, o.taken())
	require.Equal(t, "post_processing", b.record(t).Status)
	require.Zero(t, b.count(t, "SELECT count(*) FROM batch_chunks"))
}
