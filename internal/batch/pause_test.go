package batch_test

import (
	"net/http"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ranges that wait for a processor do not begin after a pause.
func TestPauseWhileRangesWaitForProcessors(t *testing.T) {
	t.Parallel()
	const window = 8
	most := runtime.GOMAXPROCS(0) + 4 // chunks that run, and chunks that are being recorded
	if most >= window {
		t.Skip("no chunk waits on this machine")
	}
	s := newStages(t, 3500*window) // of seven items two are valid, of which a range has a thousand
	require.NoError(t, s.ingester.PreProcess(t.Context(), s.key(), 1))
	runs := s.newRuns(t)
	require.Greater(t, len(runs), most)
	tx, err := s.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE execution_payloads") // the first ranges do not get on
	require.NoError(t, err)
	var group sync.WaitGroup
	for _, run := range runs {
		group.Go(func() {
			_, err := s.runner.RunItems(t.Context(), run)
			require.NoError(t, err)
		})
	}
	require.Eventually(t, func() bool {
		return s.count(t, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'execution_payloads'::regclass") > 0
	}, waitMax, tick)
	s.caller.Post(t, "/v1/execution-batches/"+s.id.String()+"/pause", nil).Expect(http.StatusOK)
	require.NoError(t, tx.Commit(t.Context()))
	group.Wait()
	sum := s.record(t).State.Summary
	require.GreaterOrEqual(t, sum.Pending, (window-most)*1000)
}
