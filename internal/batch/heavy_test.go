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
)

// heavyTarget answers with so many bytes, once it is open.
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

// next holds all calls and answers them with so many bytes; open lets them pass.
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

// Items whose services answer much are few at a time, as many as their results leave
// room for, and so are those of which nothing is known yet.
func TestHeavyItemsAreFewAtATime(t *testing.T) {
	t.Parallel()
	const (
		items        = 300
		unknownMost  = 25  // of a weight that is assumed
		heavyMost    = 120 // of 200 kB, with results beside the answer
		answersHeavy = 200_000
	)
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	for name, more := range map[string]string{
		"in chunks": `], "edges": []`,
		// These are executions before they begin, and have a job each.
		"one by one": `, {"id": "signal", "type": "wait-for-signal", "config": {"timeoutMs": 1, "onError": "continue"}}], "edges": [{"source": "start", "target": "score"}, {"source": "score", "target": "signal"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newHeavyTarget(t)
			alias := strings.ReplaceAll(name, " ", "-")
			publish(t, c, `{"name": "Bureau", "alias": "`+alias+`", "inputSchema": {"type": "object"}, "tasks": [`+request("score", "GET", o.URL)+more+`}`)
			open := o.next(answersHeavy)
			defer open()
			id := start(t, c, alias, ids(many(items)...))
			require.Eventually(t, func() bool { now, _ := o.atATime(); return now == unknownMost }, waitMax, tick)
			open()
			require.Equal(t, [4]int{items, items, 0, 0}, counts(follow(t, c, id)))
			_, most := o.atATime()
			require.LessOrEqual(t, most, heavyMost)
		})
	}
	t.Run("light ones are many", func(t *testing.T) {
		t.Parallel()
		o := newHeavyTarget(t)
		publish(t, c, `{"name": "Bureau", "alias": "light", "inputSchema": {"type": "object"}, "tasks": [`+request("score", "GET", o.URL)+`], "edges": []}`)
		open := o.next(10)
		open()
		follow(t, c, start(t, c, "light", ids("first")))
		open = o.next(10)
		defer open()
		id := start(t, c, "light", ids(many(items)...))
		require.Eventually(t, func() bool { now, _ := o.atATime(); return now == items }, waitMax, tick)
		open()
		require.Equal(t, [4]int{items, items, 0, 0}, counts(follow(t, c, id)))
	})
}
