package main_test

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/targettest"
)

// The workflow of TestKillDuringNestedTasks calls <chain>/<step>. The steps of a chain run
// one after the other; chains run concurrently.
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

// nestedKeys returns the idempotency keys of an execution with the path of each.
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

// newChainTarget returns a target that answers the first call of /turn/2 with 503 and all
// other calls with their path.
func newChainTarget(t *testing.T) *targettest.Target {
	t.Helper()
	return targettest.New(t, targettest.WithAnswer(func(w http.ResponseWriter, r *http.Request) {
		c, status := targettest.CallOf(r), http.StatusOK
		if c.Attempt == 1 && c.Path == "/turn/2" {
			status = http.StatusServiceUnavailable
		}
		targettest.StatusJSON(status, `{"at":"`+c.Path+`"}`)(w, r)
	}))
}

// checkChains returns the path of each idempotency key. A key must belong to one path. A
// call of a step means that the steps before it are completed, so none of them may be
// called afterwards.
func checkChains(t *testing.T, calls []targettest.Call) (paths map[string]string) {
	t.Helper()
	paths = map[string]string{}
	reached := map[string]int{} // latest step by execution and chain
	for _, c := range calls {
		if before, ok := paths[c.Key]; ok {
			require.Equal(t, before, c.Path, "key %s", c.Key)
		}
		paths[c.Key] = c.Path
		execution, _, _ := strings.Cut(c.Key, "/")
		slash := strings.LastIndexByte(c.Path, '/')
		chain := execution + c.Path[:slash]
		step, err := strconv.Atoi(c.Path[slash+1:])
		require.NoError(t, err)
		require.GreaterOrEqual(t, step, reached[chain], "%s of execution %s", c.Path, execution)
		reached[chain] = step
	}
	return paths
}

// Workers are killed while items, iterations and sub-workflows make calls. Each call has
// its own idempotency key and keeps it when it is repeated. Completed calls are not
// repeated.
func TestKillDuringNestedTasks(t *testing.T) {
	t.Parallel()
	const executions = 8
	items := []string{"x", "y", "z"}
	target := newChainTarget(t)
	env := onDatabase(pgtest.URL(t)).with("TRANCHE_EGRESS_ALLOW=127.0.0.1/32")
	server := env.serve(t, "--role=api")
	token := env.accessToken(t, server.url, "acme", "polling=unlimited")
	for _, definition := range []string{nestedInner, nestedOuter} {
		created := call(t, http.MethodPost, server.url+"/v2/workflows", token, strings.ReplaceAll(definition, "TARGET", target.URL))
		require.Equal(t, http.StatusCreated, created.status, created.body)
		published := call(t, http.MethodPost, server.url+"/v2/workflows/"+created.body["id"].(string)+"/publish", token, "")
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

	for _, share := range []int{3, 2} { // killed after a third and after half of the calls
		target.WaitKeys(len(want) / share)
		killDuringCalls(t, target, 1, workers...)
		require.Less(t, len(target.CallsByKey()), len(want), "the workers were killed before the last call")
		workers = []*running{env.serve(t, "--role=worker")}
	}
	for _, id := range ids {
		require.Eventually(t, func() bool {
			return call(t, http.MethodGet, server.url+"/v1/executions/"+id+"/status", token, "").body["status"] == "completed"
		}, takeOverMax, 100*time.Millisecond)
		output := call(t, http.MethodGet, server.url+"/v1/executions/"+id+"/output", token, "").body["output"]
		require.Equal(t, map[string]any{"each": []any{"/each-x/3", "/each-y/3", "/each-z/3"}, "sub": "/sub/1", "turn": "/turn/4"}, output)
	}
	require.Empty(t, cmp.Diff(want, checkChains(t, target.Calls())))
	repeated := target.Count() - len(want) - executions
	require.Positive(t, repeated, "besides the calls answered with 503, calls in flight were repeated")
	t.Logf("%d keys, %d calls repeated", len(want), repeated)
	workers[0].stop(t)
	server.stop(t)
}
