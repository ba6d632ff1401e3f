package main_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/targettest"
)

// takeOverMax limits the wait for another process to take over the work of a dead one.
// That takes up to 25 s (docs/operating.md), and longer on a busy machine.
const takeOverMax = 2 * time.Minute

// newScoreTarget returns a target whose answer contains the number of the attempt under
// the call's idempotency key.
func newScoreTarget(t *testing.T) *targettest.Target {
	t.Helper()
	return targettest.New(t, targettest.WithAnswer(func(w http.ResponseWriter, r *http.Request) {
		targettest.JSON(`{"score":`+strconv.Itoa(targettest.CallOf(r).Attempt)+`}`)(w, r)
	}))
}

// kill ends a process without warning and waits for its end.
func (r *running) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, r.cmd.Process.Kill())
	<-r.ended
}

// killDuringCalls kills processes while at least n of their calls are in flight. The
// target answers none of these calls.
func killDuringCalls(t *testing.T, target *targettest.Target, n int, processes ...*running) {
	t.Helper()
	release := target.Hold()
	target.WaitInFlight(n)
	for _, r := range processes {
		r.kill(t)
	}
	release()
}

// executeWithKey sends an execute request with an idempotency key. If the connection
// breaks, the status of the answer is 0.
func executeWithKey(t *testing.T, url, token, key string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{}`))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}
	}
	defer response.Body.Close()
	got := answer{status: response.StatusCode, header: response.Header}
	if json.NewDecoder(response.Body).Decode(&got.body) != nil {
		return answer{}
	}
	return got
}

// Three processes are in the middle of a call. One is killed, one is suspended, and one
// only waits long for its call. Another process repeats the calls of the first two with
// the same idempotency key; the third keeps its own. The suspended process can write
// nothing when it continues.
func TestLeaseOfKilledSuspendedAndSlowProcess(t *testing.T) {
	t.Parallel()
	target := newScoreTarget(t)
	release := target.Hold(func(c targettest.Call) bool { return c.Attempt == 1 })
	env := onDatabase(pgtest.URL(t)).with("TRANCHE_EGRESS_ALLOW=127.0.0.1/32")
	killed, suspended, slow := env.serve(t), env.serve(t), env.serve(t)
	token := env.accessToken(t, slow.url, "acme", "polling=unlimited")
	path := publishScoring(t, slow.url, token, target.URL)

	execute := func(r *running, key string) (id string, answered chan answer) {
		answered = make(chan answer, 1)
		go func() { answered <- executeWithKey(t, r.url+path, token, key) }()
		calls := target.Wait(target.Count() + 1)
		id, _, _ = strings.Cut(calls[len(calls)-1].Key, "/")
		return id, answered
	}
	killedID, answeredByKilled := execute(killed, "killed")
	suspendedID, answeredBySuspended := execute(suspended, "suspended")
	slowID, answeredBySlow := execute(slow, "slow")

	killed.kill(t)
	require.NoError(t, suspended.cmd.Process.Signal(syscall.SIGSTOP))
	inFlight := executeWithKey(t, slow.url+path, token, "killed")
	require.Equal(t, http.StatusConflict, inFlight.status, "the request is still in flight")

	get := func(id, resource string) map[string]any {
		return call(t, http.MethodGet, slow.url+"/v1/executions/"+id+"/"+resource, token, "").body
	}
	for _, id := range []string{killedID, suspendedID} {
		require.Eventually(t, func() bool { return get(id, "status")["status"] == "completed" }, takeOverMax, 100*time.Millisecond)
	}
	require.Equal(t, answer{}, <-answeredByKilled)
	body := func(output any) any { return output.(map[string]any)["body"] }
	second := map[string]any{"score": 2.0}
	require.Equal(t, second, body(get(killedID, "output")["output"]))
	attempts := func(id string) int {
		return len(target.WaitMatch(1, func(c targettest.Call) bool { return strings.HasPrefix(c.Key, id+"/") }))
	}
	require.Equal(t, 2, attempts(killedID), "the call was repeated with its key")
	require.Equal(t, 1, attempts(slowID), "a live process keeps its execution, however slow it is")
	replayed := executeWithKey(t, slow.url+path, token, "killed")
	require.Equal(t, http.StatusOK, replayed.status)
	require.Equal(t, "true", replayed.header.Get("Idempotency-Replayed"))
	require.Equal(t, killedID, replayed.body["executionId"])

	before := get(suspendedID, "state")
	require.NoError(t, suspended.cmd.Process.Signal(syscall.SIGCONT))
	release()
	own := <-answeredBySuspended
	require.Equal(t, http.StatusOK, own.status)
	require.Equal(t, second, body(own.body["output"]), "its caller gets the recorded result")
	require.Equal(t, before, get(suspendedID, "state"))
	require.Equal(t, map[string]any{"score": 1.0}, body((<-answeredBySlow).body["output"]))
	list := call(t, http.MethodGet, slow.url+"/v1/executions?status=completed", token, "")
	require.EqualValues(t, 3, list.body["pagination"].(map[string]any)["total"])
	suspended.stop(t)
	slow.stop(t)
}

// A process is killed between the commit of an execution and the answer to its caller.
// The repeated request gets a result from another process, and no second effect happens.
func TestKillBetweenCommitAndAnswer(t *testing.T) {
	t.Parallel()
	target := newScoreTarget(t)
	url := pgtest.URL(t)
	env := onDatabase(url).with("TRANCHE_EGRESS_ALLOW=127.0.0.1/32")
	other := env.serve(t)
	token := env.accessToken(t, other.url, "acme", "single=unlimited")
	path := publishScoring(t, other.url, token, target.URL)
	pool := pgtest.OpenPool(t, url)
	moments := []struct {
		key   string
		await func(release func(), executionID string)
	}{
		{"during the call", func(func(), string) {}},
		{"at the end of the call", func(release func(), _ string) { release() }},
		{"after the commit", func(release func(), executionID string) {
			release()
			require.Eventually(t, func() bool {
				return pgtest.Count(t, pool, "executions", "id = $1 AND status = 'completed'", executionID) == 1
			}, takeOverMax, time.Millisecond)
		}},
	}
	lost := make([]chan answer, len(moments))
	for i, moment := range moments {
		process := env.serve(t)
		release := target.Hold()
		lost[i] = make(chan answer, 1)
		go func() { lost[i] <- executeWithKey(t, process.url+path, token, moment.key) }()
		calls := target.Wait(target.Count() + 1)
		executionID, _, _ := strings.Cut(calls[len(calls)-1].Key, "/")
		moment.await(release, executionID)
		process.kill(t)
		release()
	}
	for i, moment := range moments {
		first := <-lost[i]
		var again answer
		require.Eventually(t, func() bool {
			again = executeWithKey(t, other.url+path, token, moment.key)
			return again.status == http.StatusOK
		}, takeOverMax, 200*time.Millisecond, moment.key)
		if first.status != 0 {
			require.Equal(t, first.body, again.body, moment.key)
		}
	}
	require.Equal(t, len(moments), pgtest.Count(t, pool, "executions", ""))
	require.Len(t, target.CallsByKey(), len(moments))
	other.stop(t)
}

// The only process is killed while it serves many callers, and starts again: at once, or
// so late that its row in the database is removed. Executions of synchronous requests
// have no jobs. Nevertheless each recorded execution ends once.
func TestKillDuringSynchronousRequests(t *testing.T) {
	t.Parallel()
	for name, silence := range map[string]string{"restarted at once": "0 hours", "restarted hours later": "2 hours"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const callers, before = 20, 100 // executions that end before the kill
			target := newScoreTarget(t)
			url := pgtest.URL(t)
			env := onDatabase(url).with("TRANCHE_EGRESS_ALLOW=127.0.0.1/32")
			first := env.serve(t)
			token := env.accessToken(t, first.url, "acme", "single=unlimited")
			path := publishScoring(t, first.url, token, target.URL)
			pool := pgtest.OpenPool(t, url)

			var group sync.WaitGroup
			for caller := range callers {
				group.Go(func() {
					status := http.StatusOK
					for n := 0; status == http.StatusOK; n++ {
						status = executeWithKey(t, first.url+path, token, strconv.Itoa(caller)+"-"+strconv.Itoa(n)).status
					}
				})
			}
			target.WaitKeys(before)
			killDuringCalls(t, target, callers/2, first)
			group.Wait()
			require.GreaterOrEqual(t, pgtest.Count(t, pool, "executions", "status = 'running'"), callers/2)
			require.Zero(t, pgtest.CountJobs(t, pool, "task_execution"))
			pgtest.Exec(t, pool, `UPDATE processes SET heartbeat_at = heartbeat_at - $1::interval`, silence)

			second := env.serve(t)
			require.Eventually(t, func() bool {
				return pgtest.Count(t, pool, "executions", "status <> 'completed'") == 0
			}, takeOverMax, 100*time.Millisecond)
			require.Len(t, target.CallsByKey(), pgtest.Count(t, pool, "executions", ""), "one key for each execution")
			second.stop(t)
		})
	}
}

// The process is killed together with its own PostgreSQL server. After the restart it
// takes over its earlier work.
func TestKillTogetherWithOwnServer(t *testing.T) {
	t.Parallel()
	target := newScoreTarget(t)
	env := environment{"TRANCHE_DATA_DIR=" + dataDir(t), "TRANCHE_EGRESS_ALLOW=127.0.0.1/32"}
	first := env.serve(t)
	token := env.accessToken(t, first.url, "acme")
	path := publishScoring(t, first.url, token, target.URL)
	answered := make(chan answer, 1)
	release := target.Hold(func(c targettest.Call) bool { return c.Attempt == 1 })
	go func() { answered <- executeWithKey(t, first.url+path, token, "held") }()
	target.Wait(1)
	first.kill(t)
	release()
	require.Equal(t, answer{}, <-answered)

	second := env.serve(t)
	require.Equal(t, 2, target.Wait(2)[1].Attempt)
	second.stop(t)
}
