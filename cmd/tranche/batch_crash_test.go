package main_test

import (
	"math/rand/v2"
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
	// crashItemsVariable sets the number of items for `make crash-batch`, whose
	// workers are killed until all are called for. What a killed worker held is
	// taken over when it is known to be dead, so by default there are few kills.
	crashItemsVariable = "TRANCHE_TEST_CRASH_ITEMS"
	crashItems         = 12_000
	crashKillsMax      = 3
	// How long a worker lives while the batch runs.
	workerLifeMin = 400 * time.Millisecond
	workerLifeMax = 1200 * time.Millisecond
)

// A batch whose worker is killed every few seconds comes to its end: every item
// is called for and counted, repeated calls share their key, and the counters
// are true at every moment.
func TestKillWorkersAllTheTime(t *testing.T) {
	t.Parallel()
	items, killsMax := crashItems, crashKillsMax
	if text := os.Getenv(crashItemsVariable); text != "" {
		var err error
		items, err = strconv.Atoi(text)
		require.NoError(t, err)
		killsMax = items
	}
	target := newCallCounter(t)
	env := onDatabase(pgtest.URL(t)).with("TRANCHE_EGRESS_ALLOW=127.0.0.1/32")
	server := env.serve(t, "--role=api")
	token := env.accessToken(t, server.url, "acme")
	list := strings.TrimSuffix(strings.Repeat(`{},`, items), ",")
	started := call(t, http.MethodPost, server.url+workflow(t, server.url, token, target.URL)+"-batch", token, `{"workflowInput":{"items":[`+list+`]}}`)
	require.Equal(t, http.StatusAccepted, started.status, started.body)
	path := server.url + "/v1/execution-batches/" + started.body["executionBatchId"].(string)
	record := func() (status string, summary map[string]any) {
		got := call(t, http.MethodGet, path, token, "")
		require.Equal(t, http.StatusOK, got.status, got.body)
		summary = got.body["state"].(map[string]any)["batchItemsExecutionsSummary"].(map[string]any)
		require.InDelta(t, summary["total"], summary["completed"].(float64)+summary["failed"].(float64)+summary["pending"].(float64), 0)
		return got.body["status"].(string), summary
	}
	kills := 0
	for kills < killsMax && target.distinct() < items {
		worker := env.serve(t, "--role=worker")
		for life := time.After(workerLifeMin + rand.N(workerLifeMax-workerLifeMin)); life != nil; time.Sleep(100 * time.Millisecond) {
			record()
			select {
			case <-life:
				life = nil
			default:
			}
		}
		require.NoError(t, worker.cmd.Process.Kill())
		<-worker.ended
		kills++
	}
	worker := env.serve(t, "--role=worker")
	began := time.Now()
	require.Eventually(t, func() bool {
		status, _ := record()
		return status == "complete"
	}, 90*time.Second, 500*time.Millisecond)
	_, summary := record()
	require.EqualValues(t, items, summary["completed"])
	require.Positive(t, kills)
	require.Equal(t, items, target.distinct(), "repeated calls share their key, and none is missing")
	repeated := 0
	for _, calls := range target.calls {
		repeated += calls - 1
	}
	t.Logf("%d items, %d kills, %d calls repeated, the last items %v after the last kill", items, kills, repeated, time.Since(began).Round(time.Second))
	worker.stop(t)
	server.stop(t)
}
