package main_test

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
)

const (
	// crashItemsVariable sets the number of items for `make crash-batch`.
	crashItemsVariable = "TRANCHE_TEST_CRASH_ITEMS"
	crashItems         = 3000
	// itemsPerKill is the number of items between two kills of the worker.
	itemsPerKill = 1000
)

// The worker of a batch is killed several times while its items make calls. Each item is
// called and counted once, repeated calls use the same key, and the counters always add
// up to the total.
func TestKillWorkersOfBatch(t *testing.T) {
	t.Parallel()
	items := crashItems
	if text := os.Getenv(crashItemsVariable); text != "" {
		var err error
		items, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	target := newScoreTarget(t)
	url := pgtest.URL(t)
	env := onDatabase(url).with("TRANCHE_EGRESS_ALLOW=127.0.0.1/32")
	server := env.serve(t, "--role=api")
	token := env.accessToken(t, server.url, "acme", "polling=unlimited")
	list := strings.TrimSuffix(strings.Repeat(`{},`, items), ",")
	started := call(t, http.MethodPost, server.url+publishScoring(t, server.url, token, target.URL)+"-batch", token, `{"workflowInput":{"items":[`+list+`]}}`)
	require.Equal(t, http.StatusAccepted, started.status, started.body)
	path := server.url + "/v1/execution-batches/" + started.body["executionBatchId"].(string)
	record := func() (status string, summary map[string]any) {
		got := call(t, http.MethodGet, path, token, "")
		require.Equal(t, http.StatusOK, got.status, got.body)
		summary = got.body["state"].(map[string]any)["batchItemsExecutionsSummary"].(map[string]any)
		require.InDelta(t, summary["total"], summary["completed"].(float64)+summary["failed"].(float64)+summary["pending"].(float64), 0)
		return got.body["status"].(string), summary
	}
	for called := itemsPerKill; called < items; called += itemsPerKill {
		worker := env.serve(t, "--role=worker")
		for len(target.CallsByKey()) < called {
			record()
		}
		killDuringCalls(t, target, 1, worker)
		record()
		require.Less(t, len(target.CallsByKey()), items, "the worker was killed before the last item")
	}
	worker := env.serve(t, "--role=worker")
	require.Eventually(t, func() bool {
		status, _ := record()
		return status == "complete"
	}, takeOverMax, 500*time.Millisecond)
	_, summary := record()
	require.EqualValues(t, items, summary["completed"])
	require.Len(t, target.CallsByKey(), items, "one key for each item")
	repeated := target.Count() - items
	require.Positive(t, repeated, "calls were in flight when the worker was killed")
	pool := pgtest.OpenPool(t, url)
	require.Equal(t, items, pgtest.Count(t, pool, "executions", ""))
	require.Equal(t, items, pgtest.Count(t, pool, "executions", "status = 'completed'"))
	t.Logf("%d items, %d calls repeated", items, repeated)
	worker.stop(t)
	server.stop(t)
}
