package main_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
)

// The workflow of TestKillInTheMiddleOfNestedWork calls <chain>/<step>; the
// steps of a chain follow each other, chains run beside each other.
const (
	nestedOuter = `{"name":"Outer","alias":"outer","executionMode":"async","tasks":[
		{"id":"each","type":"for-each","config":{"items":"input.items","concurrency":2,"tasks":[
			{"id":"first","type":"http-request","config":{"method":"POST","url":"TARGET/each-{{ item }}/0"}},
			{"id":"poll","type":"loop","config":{"until":"index == 1","maxIterations":5,"tasks":[
				{"id":"ask","type":"http-request","config":{"method":"POST","url":"TARGET/each-{{ item }}/{{ index + 1 }}"}}],"edges":[]}},
			{"id":"last","type":"http-request","config":{"method":"POST","url":"TARGET/each-{{ item }}/3"}}],
			"edges":[{"source":"start","target":"first"},{"source":"first","target":"poll"},{"source":"poll","target":"last"}]}},
		{"id":"sub","type":"sub-workflow","config":{"alias":"inner","version":"latest","input":{"items":"{{ input.items }}"}}},
		{"id":"turn","type":"loop","config":{"until":"index == 4","maxIterations":9,"delayMs":10,"tasks":[
			{"id":"call","type":"http-request","config":{"method":"POST","url":"TARGET/turn/{{ index }}","retry":{"initialDelayMs":10}}}],"edges":[]}},
		{"id":"done","type":"end","config":{"output":{"each":"{{ map(tasks.each.output, #.body.at) }}","sub":"{{ tasks.sub.output.body.at }}","turn":"{{ tasks.turn.output.body.at }}"}}}],
		"edges":[{"source":"start","target":"each"},{"source":"start","target":"sub"},{"source":"start","target":"turn"},
			{"source":"each","target":"done"},{"source":"sub","target":"done"},{"source":"turn","target":"done"}]}`
	nestedInner = `{"name":"Inner","alias":"inner","tasks":[
		{"id":"open","type":"http-request","config":{"method":"POST","url":"TARGET/sub/0"}},
		{"id":"inside","type":"for-each","config":{"items":"input.items","concurrency":3,"tasks":[
			{"id":"rate","type":"http-request","config":{"method":"POST","url":"TARGET/sub-{{ item }}/0"}},
			{"id":"note","type":"http-request","config":{"method":"POST","url":"TARGET/sub-{{ item }}/1"}}],
			"edges":[{"source":"start","target":"rate"},{"source":"rate","target":"note"}]}},
		{"id":"close","type":"http-request","config":{"method":"POST","url":"TARGET/sub/1"}}],
		"edges":[{"source":"start","target":"open"},{"source":"open","target":"inside"},{"source":"inside","target":"close"}]}`
)

// nestedKeys are the keys that an execution of them is to send, and what each
// is sent to.
func nestedKeys(executionID string, items []string) map[string]string {
	keys := map[string]string{"sub.open": "/sub/0", "sub.close": "/sub/1"}
	for i, item := range items {
		each, inside := fmt.Sprintf("each[%d].", i), fmt.Sprintf("sub.inside[%d].", i)
		keys[each+"first"], keys[each+"last"] = "/each-"+item+"/0", "/each-"+item+"/3"
		keys[each+"poll[0].ask"], keys[each+"poll[1].ask"] = "/each-"+item+"/1", "/each-"+item+"/2"
		keys[inside+"rate"], keys[inside+"note"] = "/sub-"+item+"/0", "/sub-"+item+"/1"
	}
	for i := range 5 {
		keys[fmt.Sprintf("turn[%d].call", i)] = fmt.Sprintf("/turn/%d", i)
	}
	named := map[string]string{}
	for path, address := range keys {
		named[executionID+"/"+path] = address
	}
	return named
}

// chainTarget records what is called under which key. A call of a step says that
// the steps before it in its chain are durably completed: none of them may come
// again.
type chainTarget struct {
	*httptest.Server
	mu      sync.Mutex
	sentTo  map[string]string // path by key
	calls   int
	reached map[string]int // by execution and chain: the last step that was called
	faults  []string
}

func newChainTarget(t *testing.T) *chainTarget {
	t.Helper()
	c := &chainTarget{sentTo: map[string]string{}, reached: map[string]int{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isFirst := c.note(r.Header.Get("Idempotency-Key"), r.URL.Path)
		time.Sleep(100 * time.Millisecond)
		w.Header().Set("Content-Type", "application/json")
		if isFirst && r.URL.Path == "/turn/2" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(`{"at":"` + r.URL.Path + `"}`))
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *chainTarget) note(key, path string) (isFirst bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	before, known := c.sentTo[key]
	if known && before != path {
		c.faults = append(c.faults, key+" is the key of "+before+" and of "+path)
	}
	c.sentTo[key] = path
	execution, _, _ := strings.Cut(key, "/")
	slash := strings.LastIndexByte(path, '/')
	chain := execution + path[:slash]
	step, err := strconv.Atoi(path[slash+1:])
	if err != nil || step < c.reached[chain] {
		c.faults = append(c.faults, fmt.Sprintf("%s came after step %d of its chain", path, c.reached[chain]))
	}
	c.reached[chain] = step
	return !known
}

func (c *chainTarget) distinct() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sentTo)
}

// Workers are killed while items, iterations and sub-workflows call the outside:
// every call has a key of its own, which a repeated call carries again, and what
// was completed before the next call began is not repeated.
func TestKillInTheMiddleOfNestedWork(t *testing.T) {
	t.Parallel()
	const executions = 8
	items := []string{"x", "y", "z"}
	target := newChainTarget(t)
	env := onDatabase(pgtest.URL(t)).with("TRANCHE_EGRESS_ALLOW=127.0.0.1/32")
	server := env.serve(t, "--role=api")
	token := env.accessToken(t, server.url, "acme")
	env.ok(t, "tenant", "limits", "acme", "--set", "polling=unlimited")
	for _, definition := range []string{nestedInner, nestedOuter} {
		made := call(t, http.MethodPost, server.url+"/v2/workflows", token, strings.ReplaceAll(definition, "TARGET", target.URL))
		require.Equal(t, http.StatusCreated, made.status, made.body)
		published := call(t, http.MethodPost, server.url+"/v2/workflows/"+made.body["id"].(string)+"/publish", token, "")
		require.Equal(t, http.StatusOK, published.status, published.body)
	}
	workers := []*running{env.serve(t, "--role=worker"), env.serve(t, "--role=worker")}
	want := map[string]string{}
	var ids []string
	for range executions {
		started := call(t, http.MethodPost, server.url+"/v1/workflows/outer/v1/execute", token, `{"items":["x","y","z"]}`)
		require.Equal(t, http.StatusAccepted, started.status, started.body)
		id := started.body["executionId"].(string)
		ids = append(ids, id)
		maps.Copy(want, nestedKeys(id, items))
	}

	for _, share := range []int{3, 2} { // killed when a third, when a half was called
		require.Eventually(t, func() bool { return target.distinct() > len(want)/share }, 2*takeOverMax, time.Millisecond)
		for _, worker := range workers {
			require.NoError(t, worker.cmd.Process.Kill())
			<-worker.ended
		}
		require.Less(t, target.distinct(), len(want), "they were killed in the middle")
		workers = []*running{env.serve(t, "--role=worker")}
	}
	for _, id := range ids {
		require.Eventually(t, func() bool {
			return call(t, http.MethodGet, server.url+"/v1/executions/"+id+"/status", token, "").body["status"] == "completed"
		}, 2*takeOverMax, 100*time.Millisecond)
		output := call(t, http.MethodGet, server.url+"/v1/executions/"+id+"/output", token, "").body["output"]
		require.Equal(t, map[string]any{"each": []any{"/each-x/3", "/each-y/3", "/each-z/3"}, "sub": "/sub/1", "turn": "/turn/4"}, output)
	}
	require.Empty(t, target.faults)
	require.Empty(t, cmp.Diff(want, target.sentTo))
	repeated := target.calls - len(want) - executions
	require.Positive(t, repeated, "calls were under way when the workers died, besides those that were answered 503")
	t.Logf("%d keys, %d calls repeated", len(want), repeated)
	workers[0].stop(t)
	server.stop(t)
}
