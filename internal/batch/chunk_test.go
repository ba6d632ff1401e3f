package batch_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// Cancelling records each item of a chunk once. A retry runs them.
func TestChunkCancelAndRetry(t *testing.T) {
	t.Parallel()
	const items, valid = 7000, 2000 // of seven items two are valid
	s := newStages(t, items)
	at := "/v1/execution-batches/" + s.id.String()
	require.NoError(t, s.ingester.PreProcess(t.Context(), s.key(), 1))
	require.Equal(t, valid, s.count(t, "SELECT sum(cardinality(item_indexes)) FROM batch_chunks"))
	runs := s.newRuns(t)
	run := func() {
		for _, run := range runs {
			_, err := s.runner.RunItems(t.Context(), run)
			require.NoError(t, err)
		}
	}
	_, err := s.runner.RunItems(t.Context(), runs[0])
	require.NoError(t, err)
	begun := s.record(t).State.Summary
	require.Positive(t, begun.Completed)
	waiting := s.count(t, "SELECT sum(cardinality(item_indexes)) FROM batch_chunks")
	require.Positive(t, waiting)
	done, err := s.runner.CancelItems(t.Context(), s.key())
	require.NoError(t, err)
	require.True(t, done, "a batch that nobody cancelled is left alone")
	require.Equal(t, waiting, s.record(t).State.Summary.Pending)

	s.caller.Post(t, at+"/cancel", nil).Expect(http.StatusOK)
	run()
	require.Equal(t, waiting, s.record(t).State.Summary.Pending, "nothing begins any more")
	for range 2 {
		done, err = s.runner.CancelItems(t.Context(), s.key())
		require.NoError(t, err)
		require.True(t, done)
	}
	sum := s.record(t).State.Summary
	require.Equal(t, [3]int{begun.Completed, begun.Failed + waiting, 0}, [3]int{sum.Completed, sum.Failed, sum.Pending})
	require.Zero(t, s.count(t, "SELECT count(*) FROM batch_chunks"))
	require.Equal(t, waiting, s.count(t, `SELECT count(*) FROM executions JOIN execution_payloads p ON p.execution_id = id
		WHERE status = 'cancelled' AND started_at IS NULL AND completed_at IS NOT NULL AND borrower_id = 'B-' || item_index AND result IS NOT NULL`))
	require.Equal(t, items, s.count(t, "SELECT count(DISTINCT item_index) FROM executions"))
	require.NoError(t, s.output.PostProcess(t.Context(), s.key()))
	require.Equal(t, "cancelled", s.record(t).Status)

	s.caller.Post(t, at+"/retry", map[string]any{"retryMode": "failed_items"}).Expect(http.StatusAccepted)
	require.NoError(t, s.batches.RetryItems(t.Context(), s.key()))
	for runs = s.newRuns(t); len(runs) > 0; runs = s.newRuns(t) {
		run()
	}
	require.NoError(t, s.output.PostProcess(t.Context(), s.key()))
	r := s.record(t)
	require.Equal(t, "complete", r.Status)
	require.Greater(t, r.State.Summary.Completed, begun.Completed)
	require.Zero(t, s.count(t, "SELECT count(*) FROM executions WHERE status = 'cancelled'"))
}

// Resuming dispatches the chunks again that the pause left. A chunk that runs twice is recorded
// once.
func TestChunkDispatchedAgainAfterPause(t *testing.T) {
	t.Parallel()
	const items, valid = 7000, 2000
	s := newStages(t, items)
	at := "/v1/execution-batches/" + s.id.String()
	require.NoError(t, s.ingester.PreProcess(t.Context(), s.key(), 1))
	before := s.newRuns(t)
	s.caller.Post(t, at+"/pause", nil).Expect(http.StatusOK)
	_, err := s.runner.RunItems(t.Context(), before[0])
	require.NoError(t, err)
	require.Equal(t, valid, s.record(t).State.Summary.Pending)
	s.caller.Post(t, at+"/resume", nil).Expect(http.StatusOK)
	again := s.newRuns(t)
	require.Equal(t, before, again)
	for _, run := range append(before, again...) {
		_, err := s.runner.RunItems(t.Context(), run)
		require.NoError(t, err)
	}
	require.Equal(t, items, s.count(t, "SELECT count(DISTINCT item_index) FROM executions"))
	require.Equal(t, items, s.count(t, "SELECT count(*) FROM executions"))
	require.Equal(t, "post_processing", s.record(t).Status)
}

// A chunk of large results is recorded by several statements, each item once. So is its retry.
func TestChunkOfLargeResults(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, `{"name": "Large", "alias": "large", "inputSchema": {"type": "object"}, "tasks": [
		{"id": "list", "type": "transform", "config": {"fields": {"list": "{{ map(1..900, \"`+strings.Repeat("x", 1000)+`\") }}"}}},
		{"id": "end", "type": "end", "config": {"status": "failed", "errorMessage": "as it is meant", "customOutput": "{{ tasks.list.output }}"}}],
		"edges": [{"source": "start", "target": "list"}, {"source": "list", "target": "end"}]}`)
	const items = 12 // of about two megabytes each, of which a statement takes two or three
	id := start(t, c, "large", ids(many(items)...))
	for attempt := range 2 {
		if attempt > 0 {
			retry(t, c, id, map[string]any{"retryMode": "failed_items"})
		}
		require.Equal(t, [4]int{items, 0, items, 0}, counts(follow(t, c, id)))
		var runs, executions, chunks int
		require.NoError(t, s.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM river.river_job WHERE kind = 'batch_item_run'),
			(SELECT count(DISTINCT item_index) FROM executions WHERE status = 'failed' AND status_code = 422), (SELECT count(*) FROM batch_chunks)`).Scan(&runs, &executions, &chunks))
		require.Greater(t, runs, items/3, "too little was split")
		require.Equal(t, items, executions)
		require.Zero(t, chunks)
	}
}
