package main_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
)

// takeOverMax is how soon another process goes on with what a dead one held: 25 s
// (docs/operating.md), and more on a machine that is busy with other tests.
const takeOverMax = 45 * time.Second

// slowTarget holds the first call of each idempotency key until it is let, and
// answers it with 1; later calls of the key are answered at once, with 2.
type slowTarget struct {
	*httptest.Server
	mu     sync.Mutex
	calls  map[string]int
	called chan struct{}
	let    chan struct{}
}

func newSlowTarget(t *testing.T) *slowTarget {
	t.Helper()
	s := &slowTarget{calls: map[string]int{}, called: make(chan struct{}, 10), let: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		s.mu.Lock()
		s.calls[key]++
		first := s.calls[key] == 1
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if !first {
			_, _ = w.Write([]byte(`{"score":2}`))
			return
		}
		s.called <- struct{}{}
		select {
		case <-s.let:
			_, _ = w.Write([]byte(`{"score":1}`))
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *slowTarget) of(executionID string) (calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, n := range s.calls {
		if strings.HasPrefix(key, executionID+"/") {
			calls += n
		}
	}
	return calls
}

// keyed is a POST under an idempotency key, with what the caller prefers; an answer that
// is lost has status 0.
func keyed(t *testing.T, url, token, key string, prefer ...string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{}`))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Idempotency-Key", key)
	request.Header["Prefer"] = prefer
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}
	}
	defer response.Body.Close()
	got := answer{status: response.StatusCode, header: response.Header}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&got.body))
	return got
}

// Of three processes in the middle of a call to the outside one is killed, one
// is stopped, and one is alive but slow. What the first two held is taken over
// with the same idempotency key; the third keeps what is its own.
// The stopped one, continued, can write nothing.
func TestLeases(t *testing.T) {
	t.Parallel()
	target := newSlowTarget(t)
	env := onDatabase(pgtest.URL(t)).with("TRANCHE_EGRESS_ALLOW=127.0.0.1/32")
	dead, stopped, slow := env.serve(t), env.serve(t), env.serve(t)
	token := env.accessToken(t, slow.url, "acme")
	path := workflow(t, slow.url, token, target.URL)
	env.ok(t, "tenant", "limits", "acme", "--set", "polling=unlimited")

	execute := func(r *running, key string) (id string, answered chan answer) {
		answered = make(chan answer, 1)
		go func() { answered <- keyed(t, r.url+path, token, key) }()
		<-target.called
		list := call(t, http.MethodGet, slow.url+"/v1/executions?per-page=1", token, "")
		return list.body["data"].([]any)[0].(map[string]any)["id"].(string), answered
	}
	killedID, lost := execute(dead, "killed")
	stoppedID, answeredByStopped := execute(stopped, "stopped")
	slowID, answeredBySlow := execute(slow, "slow")

	require.NoError(t, dead.cmd.Process.Kill())
	require.NoError(t, stopped.cmd.Process.Signal(syscall.SIGSTOP))
	begun := time.Now()
	inFlight := keyed(t, slow.url+path, token, "killed")
	require.Equal(t, http.StatusConflict, inFlight.status, "nobody has gone on with it yet")

	completed := func(id string) func() bool {
		return func() bool {
			return call(t, http.MethodGet, slow.url+"/v1/executions/"+id+"/status", token, "").body["status"] == "completed"
		}
	}
	require.Eventually(t, completed(killedID), takeOverMax, 100*time.Millisecond)
	require.Eventually(t, completed(stoppedID), takeOverMax-time.Since(begun), 100*time.Millisecond)
	require.Equal(t, answer{}, <-lost)
	output := func(id string) any {
		return call(t, http.MethodGet, slow.url+"/v1/executions/"+id+"/output", token, "").body["output"].(map[string]any)["body"]
	}
	second := map[string]any{"score": 2.0}
	require.Equal(t, second, output(killedID), "who lost the answer finds the result")
	require.Equal(t, 2, target.of(killedID), "the call was repeated under its key")
	require.Equal(t, 1, target.of(slowID), "who is alive keeps its own, however slow")
	replayed := keyed(t, slow.url+path, token, "killed")
	require.Equal(t, http.StatusOK, replayed.status)
	require.Equal(t, "true", replayed.header.Get("Idempotency-Replayed"))
	require.Equal(t, killedID, replayed.body["executionId"])

	before := call(t, http.MethodGet, slow.url+"/v1/executions/"+stoppedID+"/state", token, "").body
	require.NoError(t, stopped.cmd.Process.Signal(syscall.SIGCONT))
	close(target.let)
	own := <-answeredByStopped
	require.Equal(t, http.StatusOK, own.status)
	require.Equal(t, second, own.body["output"].(map[string]any)["body"], "its caller is told the one result")
	require.Equal(t, before, call(t, http.MethodGet, slow.url+"/v1/executions/"+stoppedID+"/state", token, "").body)
	require.Equal(t, map[string]any{"score": 1.0}, (<-answeredBySlow).body["output"].(map[string]any)["body"])
	list := call(t, http.MethodGet, slow.url+"/v1/executions?status=completed", token, "")
	require.EqualValues(t, 3, list.body["pagination"].(map[string]any)["total"])
	stopped.stop(t)
	slow.stop(t)
}

// A process that is killed after the commit and before the answer: the same
// request elsewhere is answered without another effect.
func TestKillBetweenCommitAndAnswer(t *testing.T) {
	t.Parallel()
	target := newCallCounter(t)
	url := pgtest.URL(t)
	env := onDatabase(url).with("TRANCHE_EGRESS_ALLOW=127.0.0.1/32")
	other := env.serve(t)
	token := env.accessToken(t, other.url, "acme")
	path := workflow(t, other.url, token, target.URL)
	env.ok(t, "tenant", "limits", "acme", "--set", "single=unlimited")
	pool := pgtest.OpenPool(t, url)
	const rounds = 3
	lost := make([]chan answer, rounds)
	key := func(round int) string { return "round-" + strconv.Itoa(round) }
	for round := range lost {
		killed := env.serve(t)
		lost[round] = make(chan answer, 1)
		go func() { lost[round] <- keyed(t, killed.url+path, token, key(round)) }()
		require.Eventually(t, func() bool {
			var n int
			require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM idempotency_keys WHERE key = $1`, key(round)).Scan(&n))
			return n == 1
		}, 10*time.Second, time.Millisecond, "the commit")
		time.Sleep(time.Duration(round) * 30 * time.Millisecond) // during the call to the outside, as it ends, after it
		require.NoError(t, killed.cmd.Process.Kill())
	}
	for round := range lost {
		first := <-lost[round]
		var again answer
		require.Eventually(t, func() bool {
			again = keyed(t, other.url+path, token, key(round))
			return again.status == http.StatusOK
		}, takeOverMax, 200*time.Millisecond)
		if first.status != 0 {
			require.Equal(t, first.body, again.body)
		}
	}
	var executions int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM executions`).Scan(&executions))
	require.Equal(t, rounds, executions)
	require.Equal(t, rounds, target.distinct())
	other.stop(t)
}

// A process that is alone and is killed while it serves many callers, and started
// again: at once, or when its row is so old that it is removed. No job waited for
// what it had under way, whether callers waited or not, and yet each execution that was
// recorded ends, once.
func TestKillInTheMiddleOfCalls(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		silence string
		prefer  []string
		status  int
	}{
		"at once":     {"0 hours", nil, http.StatusOK},
		"hours later": {"2 hours", nil, http.StatusOK},
		"accepted":    {"0 hours", []string{"respond-async"}, http.StatusAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := newCallCounter(t)
			url := pgtest.URL(t)
			env := onDatabase(url).with("TRANCHE_EGRESS_ALLOW=127.0.0.1/32")
			before := env.serve(t)
			token := env.accessToken(t, before.url, "acme")
			path := workflow(t, before.url, token, target.URL)
			env.ok(t, "tenant", "limits", "acme", "--set", "single=unlimited")
			before.stop(t)
			first := env.serve(t) // and knows the limits from the start
			pool := pgtest.OpenPool(t, url)
			count := func(sql string) (n int) {
				require.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&n))
				return n
			}

			var callers sync.WaitGroup
			for caller := range 20 {
				callers.Go(func() {
					status := tc.status
					for n := 0; status == tc.status; n++ {
						status = keyed(t, first.url+path, token, strconv.Itoa(caller)+"-"+strconv.Itoa(n), tc.prefer...).status
					}
				})
			}
			require.Eventually(t, func() bool { return target.distinct() > 100 }, 30*time.Second, time.Millisecond)
			require.NoError(t, first.cmd.Process.Kill())
			callers.Wait()
			require.Positive(t, count(`SELECT count(*) FROM executions WHERE status = 'running'`))
			if tc.prefer == nil {
				require.Zero(t, count(`SELECT count(*) FROM river.river_job WHERE kind = 'task_execution'`))
			}
			_, err := pool.Exec(t.Context(), `UPDATE processes SET heartbeat_at = heartbeat_at - $1::interval`, tc.silence)
			require.NoError(t, err)

			second := env.serve(t)
			require.Eventually(t, func() bool {
				return count(`SELECT count(*) FROM executions WHERE status <> 'completed'`) == 0
			}, takeOverMax, 100*time.Millisecond)
			require.Equal(t, target.distinct(), count(`SELECT count(*) FROM executions`), "each has its key, and no other has been used")
			second.stop(t)
		})
	}
}

// Where the database ends with the process, what it held is taken over soon after
// the next start.
func TestKillTogetherWithTheOwnServer(t *testing.T) {
	t.Parallel()
	target := newSlowTarget(t)
	env := environment{"TRANCHE_DATA_DIR=" + dataDir(t), "TRANCHE_EGRESS_ALLOW=127.0.0.1/32"}
	first := env.serve(t)
	token := env.accessToken(t, first.url, "acme")
	path := workflow(t, first.url, token, target.URL)
	go keyed(t, first.url+path, token, "held")
	<-target.called
	require.NoError(t, first.cmd.Process.Kill())
	<-first.ended

	second := env.serve(t)
	started := time.Now()
	id := call(t, http.MethodGet, second.url+"/v1/executions", token, "").body["data"].([]any)[0].(map[string]any)["id"].(string)
	require.Eventually(t, func() bool { return target.of(id) == 2 }, takeOverMax, 100*time.Millisecond)
	require.Less(t, time.Since(started), 15*time.Second)
	second.stop(t)
}
