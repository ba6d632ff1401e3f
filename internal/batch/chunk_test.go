package batch_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// A batch that is cancelled ends what waits in chunks, each item once and with a
// row of its own; retried, they run like any others.
func TestChunksAreCancelledAndRetried(t *testing.T) {
	t.Parallel()
	const items, valid = 7000, 2000 // of seven items two are valid
	s := newStages(t, items)
	at := "/v1/execution-batches/" + s.id.String()
	require.NoError(t, s.batches.PreProcess(t.Context(), s.tenantID, s.id))
	require.Equal(t, valid, s.count(t, "SELECT sum(cardinality(item_indexes)) FROM batch_chunks"))
	runs := s.newRuns(t)
	run := func() {
		for _, run := range runs {
			_, err := s.batches.RunItems(t.Context(), run)
			require.NoError(t, err)
		}
	}
	_, err := s.batches.RunItems(t.Context(), runs[0])
	require.NoError(t, err)
	begun := s.record(t).State.Summary
	require.Positive(t, begun.Completed)
	waiting := s.count(t, "SELECT sum(cardinality(item_indexes)) FROM batch_chunks")
	require.Positive(t, waiting)
	done, err := s.batches.CancelItems(t.Context(), s.tenantID, s.id)
	require.NoError(t, err)
	require.True(t, done, "a batch that nobody cancelled is left alone")
	require.Equal(t, waiting, s.record(t).State.Summary.Pending)

	s.caller.Post(t, at+"/cancel", nil).Expect(http.StatusOK)
	run()
	require.Equal(t, waiting, s.record(t).State.Summary.Pending, "nothing begins any more")
	for range 2 {
		done, err = s.batches.CancelItems(t.Context(), s.tenantID, s.id)
		require.NoError(t, err)
		require.True(t, done)
	}
	sum := s.record(t).State.Summary
	require.Equal(t, [3]int{begun.Completed, begun.Failed + waiting, 0}, [3]int{sum.Completed, sum.Failed, sum.Pending})
	require.Zero(t, s.count(t, "SELECT count(*) FROM batch_chunks"))
	require.Equal(t, waiting, s.count(t, `SELECT count(*) FROM executions JOIN execution_payloads p ON p.execution_id = id
		WHERE status = 'cancelled' AND started_at IS NULL AND completed_at IS NOT NULL AND borrower_id = 'B-' || item_index AND result IS NOT NULL`))
	require.Equal(t, items, s.count(t, "SELECT count(DISTINCT item_index) FROM executions"))
	require.NoError(t, s.batches.PostProcess(t.Context(), s.tenantID, s.id))
	require.Equal(t, "cancelled", s.record(t).Status)

	s.caller.Post(t, at+"/retry", map[string]any{"retryMode": "failed_items"}).Expect(http.StatusAccepted)
	require.NoError(t, s.batches.RetryItems(t.Context(), s.tenantID, s.id))
	for runs = s.newRuns(t); len(runs) > 0; runs = s.newRuns(t) {
		run()
	}
	require.NoError(t, s.batches.PostProcess(t.Context(), s.tenantID, s.id))
	r := s.record(t)
	require.Equal(t, "complete", r.Status)
	require.Greater(t, r.State.Summary.Completed, begun.Completed)
	require.Zero(t, s.count(t, "SELECT count(*) FROM executions WHERE status = 'cancelled'"))
}

// Resuming feeds the chunks again that the pause let fall, and what runs twice
// is recorded once.
func TestChunksAreFedAgainAfterAPause(t *testing.T) {
	t.Parallel()
	const items, valid = 7000, 2000
	s := newStages(t, items)
	at := "/v1/execution-batches/" + s.id.String()
	require.NoError(t, s.batches.PreProcess(t.Context(), s.tenantID, s.id))
	before := s.newRuns(t)
	s.caller.Post(t, at+"/pause", nil).Expect(http.StatusOK)
	_, err := s.batches.RunItems(t.Context(), before[0])
	require.NoError(t, err)
	require.Equal(t, valid, s.record(t).State.Summary.Pending)
	s.caller.Post(t, at+"/resume", nil).Expect(http.StatusOK)
	again := s.newRuns(t)
	require.Equal(t, before, again)
	for _, run := range append(before, again...) {
		_, err := s.batches.RunItems(t.Context(), run)
		require.NoError(t, err)
	}
	require.Equal(t, items, s.count(t, "SELECT count(DISTINCT item_index) FROM executions"))
	require.Equal(t, items, s.count(t, "SELECT count(*) FROM executions"))
	require.Equal(t, "post_processing", s.record(t).Status)
}
