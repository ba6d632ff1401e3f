package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
)

// callCounter answers like a slow service and counts the calls of each
// idempotency key.
type callCounter struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]int
}

func newCallCounter(t *testing.T) *callCounter {
	t.Helper()
	c := &callCounter{calls: map[string]int{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.calls[r.Header.Get("Idempotency-Key")]++
		c.mu.Unlock()
		time.Sleep(50 * time.Millisecond)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"score":700}`))
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *callCounter) distinct() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// A service that is killed in the middle of a batch and started again brings it
// to its end: nothing is lost, and nothing counted twice.
func TestKillInTheMiddleOfABatch(t *testing.T) {
	t.Parallel()
	const items = 3000
	target := newCallCounter(t)
	url := pgtest.URL(t)
	env := onDatabase(url).with("TRANCHE_EGRESS_ALLOW=127.0.0.1/32")
	first := env.serve(t)
	token := env.accessToken(t, first.url, "acme")
	path := workflow(t, first.url, token, target.URL)

	var list strings.Builder
	for i := range items {
		fmt.Fprintf(&list, `{"n":%d},`, i)
	}
	started := call(t, http.MethodPost, first.url+path+"-batch", token,
		`{"workflowInput":{"items":[`+strings.TrimSuffix(list.String(), ",")+`]}}`)
	require.Equal(t, http.StatusAccepted, started.status, started.body)
	path = "/v1/execution-batches/" + started.body["executionBatchId"].(string)

	require.Eventually(t, func() bool { return target.distinct() > items/4 }, 60*time.Second, 10*time.Millisecond)
	require.NoError(t, first.cmd.Process.Kill())
	<-first.ended
	before := target.distinct()
	require.Less(t, before, items, "it was killed in the middle")

	second := env.serve(t)
	var summary map[string]any
	require.Eventually(t, func() bool {
		record := call(t, http.MethodGet, second.url+path, token, "")
		require.Equal(t, http.StatusOK, record.status, record.body)
		state := record.body["state"].(map[string]any)
		summary = state["batchItemsExecutionsSummary"].(map[string]any)
		require.InDelta(t, summary["total"], summary["completed"].(float64)+summary["failed"].(float64)+summary["pending"].(float64), 0)
		return record.body["status"] == "complete"
	}, 90*time.Second, 200*time.Millisecond)
	require.EqualValues(t, items, summary["completed"])
	require.Equal(t, items, target.distinct(), "repeated calls share their key, and none is missing")

	pool := pgtest.OpenPool(t, url)
	var executions, completed int
	require.NoError(t, pool.QueryRow(t.Context(),
		`SELECT count(*), count(*) FILTER (WHERE status = 'completed') FROM executions`).Scan(&executions, &completed))
	require.Equal(t, items, executions)
	require.Equal(t, items, completed)
	second.stop(t)
}
