package batch_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// heavyTarget is a target with large responses.
type heavyTarget struct {
	*httptest.Server
	mu          sync.Mutex
	bytes       int
	gate        chan struct{}
	calls, most int // at a time
}

func newHeavyTarget(t *testing.T) *heavyTarget {
	t.Helper()
	o := &heavyTarget{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		o.mu.Lock()
		o.calls++
		o.most = max(o.most, o.calls)
		gate, bytes := o.gate, o.bytes
		o.mu.Unlock()
		<-gate
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"report": "` + strings.Repeat("x", bytes) + `"}`))
		o.mu.Lock()
		o.calls--
		o.mu.Unlock()
	}))
	t.Cleanup(o.Close)
	return o
}

// next makes the target hold all calls, which open then answers with so many bytes.
func (o *heavyTarget) next(bytes int) (open func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes, o.gate, o.most = bytes, make(chan struct{}), 0
	return sync.OnceFunc(func() { close(o.gate) })
}

func (o *heavyTarget) atATime() (now, most int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.calls, o.most
}

// Items with large responses, and items of a new workflow, run a few at a time. Items with small
// ones run many at a time.
func TestItemWeights(t *testing.T) {
	t.Parallel()
	const (
		items        = 200
		unknownMost  = 24 // of a weight that is assumed
		heavyMost    = 120
		answersHeavy = 200_000
	)
	light := slices.Repeat([]string{"none"}, items/10)
	for name, of := range map[string]struct {
		light []string // items that call nobody
		last  string
	}{
		"in chunks": {nil, "score"},
		// The first items to end have no results and lower the average.
		"some call nobody": {light, "score"},
		// These items are recorded before they begin, and have a job each.
		"one by one": {nil, "signal"},
	} {
		t.Run(name, func(t *testing.T) {
			c := apitest.Start(t).Tenant(t).As(t, identity.RoleAdmin)
			o := newHeavyTarget(t)
			call := strings.Replace(request("score", "GET", o.URL), `"retry"`, `"when": "input.id != \"none\"", "retry"`, 1)
			edges := `{"source": "start", "target": "score"}, {"source": "` + of.last + `", "target": "done"}`
			if of.last == "signal" {
				call += `, {"id": "signal", "type": "wait-for-signal", "config": {"timeoutMs": 1, "onError": "continue"}}`
				edges += `, {"source": "score", "target": "signal"}`
			}
			publish(t, c, `{"name": "Bureau", "alias": "bureau", "inputSchema": {"type": "object"},
				"tasks": [`+call+`, {"id": "done", "type": "end", "config": {"output": {"of": "{{ input.id }}"}}}], "edges": [`+edges+`]}`)
			open := o.next(answersHeavy)
			defer open()
			all := append(slices.Clone(of.light), many(items)...)
			id := start(t, c, "bureau", ids(all...))
			require.Eventually(t, func() bool {
				now, _ := o.atATime()
				var r record
				c.Get(t, "/v1/execution-batches/"+id).Expect(http.StatusOK).Decode(&r)
				return now >= unknownMost && r.State.Summary.Completed == len(of.light)
			}, waitMax, tick)
			open()
			require.Equal(t, [4]int{len(all), len(all), 0, 0}, counts(follow(t, c, id)))
			_, most := o.atATime()
			require.LessOrEqual(t, most, heavyMost)
		})
	}
	t.Run("light", func(t *testing.T) {
		c := apitest.Start(t).Tenant(t).As(t, identity.RoleAdmin)
		o := newHeavyTarget(t)
		publish(t, c, `{"name": "Bureau", "alias": "light", "inputSchema": {"type": "object"}, "tasks": [`+request("score", "GET", o.URL)+`], "edges": []}`)
		o.next(10)()
		follow(t, c, start(t, c, "light", ids(many(200)...)))
		open := o.next(10)
		defer open()
		id := start(t, c, "light", ids(many(items)...))
		require.Eventually(t, func() bool { now, _ := o.atATime(); return now == items }, waitMax, tick)
		open()
		require.Equal(t, [4]int{items, items, 0, 0}, counts(follow(t, c, id)))
	})
}
