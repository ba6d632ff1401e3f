package batch_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// waitMax is how long tests wait for an event. tick is how often they check for it.
const (
	waitMax = 2 * time.Minute
	tick    = 20 * time.Millisecond
)

// target is the service that a workflow calls. It records the calls and fails those that the
// test names.
type target struct {
	*httptest.Server
	mu     sync.Mutex
	calls  []string            // "B-1/score"
	keys   map[string][]string // the requests by key
	asked  map[string][]string
	broken map[string]bool
	gate   chan struct{} // unless nil, every call waits for it to be closed
}

func newTarget(t *testing.T) *target {
	t.Helper()
	o := &target{broken: map[string]bool{}, keys: map[string][]string{}, asked: map[string][]string{}}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := r.URL.Query().Get("id") + r.URL.Path
		o.mu.Lock()
		o.calls = append(o.calls, call)
		o.keys[call] = append(o.keys[call], r.Header.Get("Idempotency-Key"))
		o.asked[call] = append(o.asked[call], r.URL.String())
		broken, gate := o.broken[call], o.gate
		o.mu.Unlock()
		if gate != nil {
			select {
			case <-gate:
			case <-r.Context().Done():
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if broken {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(`{"score": 700.50}`))
	}))
	t.Cleanup(o.Close)
	return o
}

// set makes these calls fail, and no others.
func (o *target) set(broken ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken = map[string]bool{}
	for _, call := range broken {
		o.broken[call] = true
	}
}

// open makes the target answer all calls.
func (o *target) open() {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.gate)
	o.gate = nil
}

// taken returns the calls since the last call of taken, in alphabetical order.
func (o *target) taken() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	calls := slices.Sorted(slices.Values(o.calls))
	o.calls = nil
	return calls
}

// chain is a workflow of four consecutive calls. It handles failures of the second and the
// third. The third is a data source.
func (o *target) chain(alias string) string {
	call := func(id, more string) string {
		return fmt.Sprintf(`{"id": %q, "type": "http-request", "config": {"method": "GET", "url": "%s/%s?id={{ input.id }}"%s}}`, id, o.URL, id, more)
	}
	return `{"name": "Chain", "alias": "` + alias + `", "inputSchema": {"type": "object", "properties": {"id": {"type": "string", "maxLength": 5}}},
		"tasks": [` + call("first", "") + "," + call("other", `, "onError": "continue"`) + "," + call("score", `, "onError": "continue", "source": "bureau"`) + "," + call("last", "") + `,
			{"id": "done", "type": "end", "config": {"output": {"score": "{{ tasks.score.output.body.score }}"}}}],
		"edges": [{"source": "start", "target": "first"}, {"source": "first", "target": "other"}, {"source": "other", "target": "score"}, {"source": "score", "target": "last"}, {"source": "last", "target": "done"}]}`
}

// showLight runs items of the chain, so that the service learns their small weight.
func (o *target) showLight(t *testing.T, c *apitest.Caller) {
	t.Helper()
	follow(t, c, start(t, c, "chain", ids(many(200)...)))
	o.taken()
}

func ids(ids ...string) map[string]any {
	items := make([]any, len(ids))
	for i, id := range ids {
		items[i] = map[string]any{"id": id}
	}
	return map[string]any{"workflowInput": map[string]any{"items": items}}
}

func retry(t *testing.T, c *apitest.Caller, id string, body map[string]any) *apitest.Answer {
	t.Helper()
	return c.Post(t, "/v1/execution-batches/"+id+"/retry", body).Expect(http.StatusAccepted)
}

func counts(r record) [4]int {
	s := r.State.Summary
	return [4]int{s.Total, s.Completed, s.Failed, s.UnsuccessfulSources}
}

// Each mode repeats exactly the calls of its items.
func TestRetryModes(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	broken := []string{"F/last", "S/score", "O/other", "OS/other", "OS/score", "SF/score", "SF/last", "OF/other", "OF/last"}
	for name, want := range map[string]struct {
		mode   string
		items  int
		calls  []string
		counts [4]int
	}{
		"failed items": {"failed_items", 4, []string{"F/last", "OF/last", "OF/other", "OF/score", "SF/last", "SF/score"}, [4]int{8, 7, 1, 2}},
		"sources":      {"unsuccessful_sources_items", 2, []string{"OS/last", "OS/score", "S/last", "S/score"}, [4]int{8, 4, 4, 0}},
		"both": {
			"failed_and_unsuccessful_sources_items", 6,
			[]string{"F/last", "OF/last", "OF/other", "OF/score", "OS/last", "OS/score", "S/last", "S/score", "SF/last", "SF/score"},
			[4]int{8, 7, 1, 0},
		},
		"post-processing": {"post_processing", 0, nil, [4]int{8, 4, 4, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newTarget(t)
			alias := strings.ReplaceAll(name, " ", "-")
			publish(t, c, o.chain(alias))
			o.set(broken...)
			id := start(t, c, alias, ids("OK", "F", "S", "O", "OS", "SF", "OF", "refused"))
			r := follow(t, c, id)
			require.Equal(t, [4]int{8, 4, 4, 2}, counts(r))
			require.Len(t, o.taken(), 7*4)
			o.set()
			first := *r.Outputs.Post.PackageID
			retried := retry(t, c, id, map[string]any{"retryMode": want.mode})
			require.Equal(t, fmt.Sprint(want.items), retried.Text("itemsToRetry"))
			require.Equal(t, "2", retried.Text("attempt"))
			r = follow(t, c, id)
			require.Equal(t, "complete", r.Status)
			require.Equal(t, want.calls, o.taken())
			require.Equal(t, want.counts, counts(r))
			require.NotEqual(t, first, *r.Outputs.Post.PackageID)
			// The package of every attempt is kept.
			require.Len(t, table(t, files(t, c, first)["failed.csv"]), 4)
			require.Len(t, table(t, files(t, c, *r.Outputs.Post.PackageID)["failed.csv"]), want.counts[2])
			require.Equal(t, first, c.Get(t, "/v1/execution-batches/"+id).Text("outputs.wBatchPostProcessingOutput.earlierOutputPackageIds[0]"))
			if want.items == 0 {
				return
			}
			for call, keys := range o.keys {
				if len(keys) > 1 { // each call was answered, so its repetition is another one
					require.NotEqual(t, keys[0], keys[1], call)
				}
			}
		})
	}
}

func TestRetryOfPreProcessing(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	o := newTarget(t)
	publish(t, c, o.chain("chain"))
	id := start(t, c, "chain", map[string]any{"attachmentFileNames": []string{upload(t, c, "a.csv", "id\n\"A\n")}})
	for attempt := 1; attempt <= 2; attempt++ {
		r := follow(t, c, id)
		require.Equal(t, "pre_processing_failed", r.Status)
		require.Equal(t, "failed: no item matches the input schema; the first: a.csv, row 2: id: a quote is out of place or not closed", r.Outputs.Pre.Result)
		if attempt == 1 {
			require.Equal(t, "pending", retry(t, c, id, map[string]any{"retryMode": "pre_processing", "usePreviousInputs": true}).Text("status"))
		}
	}
	body := ids("B")
	body["retryMode"], body["usePreviousInputs"] = "pre_processing", false
	body["attachmentFileNames"] = []string{upload(t, c, "b.csv", "id\nC\n")}
	require.Equal(t, "3", retry(t, c, id, body).Text("attempt"))
	r := follow(t, c, id)
	require.Equal(t, "complete", r.Status)
	require.Equal(t, "valid", r.Outputs.Pre.Result)
	require.Equal(t, []string{"B/first", "B/last", "B/other", "B/score", "C/first", "C/last", "C/other", "C/score"}, o.taken())
}

func TestRetryRefusals(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	o := newTarget(t)
	publish(t, c, o.chain("chain"))
	id := start(t, c, "chain", ids("A"))
	require.Equal(t, "complete", follow(t, c, id).Status)
	at := "/v1/execution-batches/" + id
	for name, refusal := range map[string]struct {
		body  map[string]any
		field string
	}{
		"no mode":               {map[string]any{}, "retryMode"},
		"unknown mode":          {map[string]any{"retryMode": "everything"}, "retryMode"},
		"previous and new":      {map[string]any{"retryMode": "pre_processing", "attachmentFileNames": []string{"x.csv"}}, "usePreviousInputs"},
		"neither":               {map[string]any{"retryMode": "pre_processing", "usePreviousInputs": false}, "usePreviousInputs"},
		"only a custom input":   {map[string]any{"retryMode": "pre_processing", "usePreviousInputs": false, "workflowInput": map[string]any{"customInput": map[string]any{}}}, "usePreviousInputs"},
		"inputs for other mode": {map[string]any{"retryMode": "failed_items", "usePreviousInputs": false, "attachmentFileNames": []string{"x.csv"}}, "usePreviousInputs"},
	} {
		problem := c.Post(t, at+"/retry", refusal.body).Expect(http.StatusBadRequest)
		require.Contains(t, string(problem.Body), refusal.field, name)
	}
	for _, mode := range []string{"pre_processing", "failed_items", "unsuccessful_sources_items", "failed_and_unsuccessful_sources_items"} {
		c.Post(t, at+"/retry", map[string]any{"retryMode": mode}).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	}
	for _, verb := range []string{"pause", "resume", "cancel"} {
		c.Post(t, at+"/"+verb, nil).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	}
	stranger := s.Tenant(t).As(t, identity.RoleAdmin)
	reader := tenant.With(t, identity.ScopeBatchesRead)
	for _, verb := range []string{"pause", "resume", "cancel", "retry"} {
		var body any
		if verb == "retry" {
			body = map[string]any{"retryMode": "post_processing"}
		}
		stranger.Post(t, at+"/"+verb, body).Expect(http.StatusNotFound)
		reader.Post(t, at+"/"+verb, body).Expect(http.StatusForbidden)
	}
	stranger.Get(t, at+"/items").Expect(http.StatusNotFound)

	// With one idempotency key, a retry is accepted once.
	key := apitest.Header{Name: "Idempotency-Key", Value: "again"}
	first := c.Post(t, at+"/retry", map[string]any{"retryMode": "post_processing"}, key).Expect(http.StatusAccepted)
	second := c.Post(t, at+"/retry", map[string]any{"retryMode": "post_processing"}, key).Expect(http.StatusAccepted)
	require.Equal(t, string(first.Body), string(second.Body))
	require.Equal(t, "complete", follow(t, c, id).Status)
	require.Equal(t, "2", c.Get(t, at).Text("attempt"))
}

// until polls a batch until the condition is true.
func until(t *testing.T, c *apitest.Caller, id string, want func(record) bool) (r record) {
	t.Helper()
	require.Eventually(t, func() bool {
		c.Get(t, "/v1/execution-batches/"+id).Expect(http.StatusOK).Decode(&r)
		require.Equal(t, r.State.Summary.Total, r.State.Summary.Completed+r.State.Summary.Failed+r.State.Summary.Pending)
		return want(r)
	}, waitMax, tick)
	return r
}

func many(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(i)
	}
	return list
}

func TestPauseResumeAndCancel(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	o := newTarget(t)
	publish(t, c, o.chain("chain"))
	o.showLight(t, c)
	o.gate = make(chan struct{})
	const items = 1800 // more than twice the places: not all have begun when the batch is cancelled
	id := start(t, c, "chain", ids(many(items)...))
	at := "/v1/execution-batches/" + id
	require.Eventually(t, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.calls) > 100
	}, waitMax, tick)
	require.Equal(t, "paused", c.Post(t, at+"/pause", nil).Expect(http.StatusOK).Text("status"))
	c.Post(t, at+"/pause", nil).Expect(http.StatusConflict)
	c.Post(t, at+"/retry", map[string]any{"retryMode": "failed_items"}).Expect(http.StatusConflict)

	// Running items finish, and no more begin.
	o.open()
	require.Eventually(t, func() bool { // those that make their first call are not listed
		return s.Pool.QueryRow(t.Context(), "SELECT count(*) FROM batch_chunks WHERE holder_id IS NOT NULL HAVING count(*) = 0").Scan(new(int)) == nil
	}, waitMax, tick)
	require.Equal(t, "0", c.Get(t, at+"/items?status=running").Expect(http.StatusOK).Text("pagination.total"))
	r := until(t, c, id, func(record) bool { return true })
	require.Equal(t, "paused", r.Status)
	require.Positive(t, r.State.Summary.Completed)
	require.Less(t, r.State.Summary.Completed, items)
	require.Len(t, o.taken(), 4*r.State.Summary.Completed)

	o.gate = make(chan struct{}) // nobody calls
	require.Equal(t, "processing", c.Post(t, at+"/resume", nil).Expect(http.StatusOK).Text("status"))
	c.Post(t, at+"/resume", nil).Expect(http.StatusConflict)
	require.Eventually(t, func() bool { return o.count() > 0 }, waitMax, tick)
	cancelled := c.Post(t, at+"/cancel", nil).Expect(http.StatusOK)
	require.Equal(t, "processing", cancelled.Text("status"))
	require.NotEmpty(t, cancelled.Text("cancelRequestedAt"))
	o.open()
	r = until(t, c, id, func(now record) bool { return now.Status == "cancelled" })
	require.Empty(t, c.Get(t, at).Expect(http.StatusOK).Text("cancelRequestedAt"), "the status says it now")
	require.Equal(t, items, r.State.Summary.Completed+r.State.Summary.Failed)
	require.Positive(t, r.State.Summary.Failed)
	results := table(t, files(t, c, *r.Outputs.Post.PackageID)["results.csv"])
	require.Len(t, results, items)
	o.taken()

	// A retry runs the cancelled items: each makes its first call.
	failed := r.State.Summary.Failed
	require.Equal(t, fmt.Sprint(failed), retry(t, c, id, map[string]any{"retryMode": "failed_items"}).Text("itemsToRetry"))
	r = follow(t, c, id)
	require.Equal(t, "complete", r.Status)
	require.Equal(t, [4]int{items, items, 0, 0}, counts(r))
	require.Len(t, o.taken(), 4*failed)
	require.Empty(t, c.Get(t, at).Text("cancelRequestedAt"))
}

// Waiting items are cancelled too, though no process holds them.
func TestCancelWaitingItems(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	t.Cleanup(server.Close)
	publish(t, c, `{"name": "Slow", "alias": "slow", "executionMode": "async", "inputSchema": {"type": "object"},
		"tasks": [{"id": "score", "type": "http-request", "config": {"method": "GET", "url": "`+server.URL+`", "retry": {"maxAttempts": 2, "initialDelayMs": 600000, "maxDelayMs": 600000}}}], "edges": []}`)
	id := start(t, c, "slow", ids("A", "B", "C"))
	at := "/v1/execution-batches/" + id
	require.Eventually(t, func() bool {
		return s.Pool.QueryRow(t.Context(), "SELECT count(*) FROM executions WHERE status = 'running' AND lease_token IS NULL HAVING count(*) = 3").Scan(new(int)) == nil
	}, waitMax, tick)
	c.Post(t, at+"/pause", nil).Expect(http.StatusOK)
	c.Post(t, at+"/cancel", nil).Expect(http.StatusOK)
	r := until(t, c, id, func(now record) bool { return now.Status == "cancelled" })
	require.Equal(t, [4]int{3, 0, 3, 0}, counts(r))
	list := c.Get(t, at+"/items?per-page=2&cursor=").Expect(http.StatusOK)
	require.Equal(t, "0", list.Text("data[0].itemIndex"))
	require.Equal(t, "cancelled", list.Text("data[1].status"))
	require.Equal(t, "the execution was cancelled", list.Text("data[1].errorMessage"))
	list = c.Get(t, at+"/items?per-page=2&cursor="+list.Text("pagination.nextCursor")).Expect(http.StatusOK)
	require.Equal(t, "2", list.Text("data[0].itemIndex"))
	state := c.Get(t, "/v1/executions/"+list.Text("data[0].executionId")+"/state").Expect(http.StatusOK)
	require.Equal(t, "cancelled", state.Text("tasks[0].status"))
}

// A batch can be paused and cancelled in every phase.
func TestPauseInEveryPhase(t *testing.T) {
	t.Parallel()
	s := newStages(t, 2_500)
	at := "/v1/execution-batches/" + s.id.String()
	verb := func(name, status string) {
		t.Helper()
		require.Equal(t, status, s.caller.Post(t, at+"/"+name, nil).Expect(http.StatusOK).Text("status"))
	}
	step := func(stage func() error) { t.Helper(); require.NoError(t, stage()) }
	pre := func() error { return s.ingester.PreProcess(t.Context(), s.key(), 1) }
	post := func() error { return s.output.PostProcess(t.Context(), s.key()) }

	verb("pause", "paused")
	step(pre)
	require.Equal(t, "paused", s.record(t).Status)
	verb("resume", "pending")
	for _, status := range []string{"pre_processing", "pre_processing_complete"} {
		if status == "pre_processing_complete" { // as if the process died between two transactions
			step(pre)
		}
		_, err := s.Pool.Exec(t.Context(), "UPDATE execution_batches SET status = $1", status)
		require.NoError(t, err)
		verb("pause", "paused")
		step(pre)
		require.Equal(t, "paused", s.record(t).Status)
		verb("resume", status)
	}
	step(pre)
	verb("pause", "paused")
	dropped := s.newRuns(t)
	require.NotEmpty(t, dropped)
	run := func() {
		for runs := s.newRuns(t); len(runs) > 0; runs = s.newRuns(t) {
			for _, run := range runs {
				_, err := s.runner.RunItems(t.Context(), run)
				require.NoError(t, err)
			}
		}
	}
	for _, run := range dropped {
		_, err := s.runner.RunItems(t.Context(), run)
		require.NoError(t, err)
	}
	require.Zero(t, s.record(t).State.Summary.Completed, "nothing begins while it is paused")
	verb("resume", "processing")
	run()
	require.Equal(t, "post_processing", s.record(t).Status)
	verb("pause", "paused")
	step(post)
	verb("resume", "post_processing")
	verb("cancel", "post_processing")
	step(post)
	r := s.record(t)
	require.Equal(t, "cancelled", r.Status)
	require.Positive(t, r.State.Summary.Completed)

	// A retry is paused while its items are prepared, and then cancelled.
	s.caller.Post(t, at+"/retry", map[string]any{"retryMode": "failed_items"}).Expect(http.StatusAccepted)
	verb("pause", "paused")
	step(func() error { return s.batches.RetryItems(t.Context(), s.key()) })
	require.Zero(t, s.record(t).State.Summary.Pending)
	verb("resume", "processing")
	step(func() error { return s.batches.RetryItems(t.Context(), s.key()) })
	pending := s.record(t).State.Summary.Pending
	require.Positive(t, pending)
	verb("cancel", "processing")
	verb("cancel", "processing")
	run()
	require.Equal(t, pending, s.record(t).State.Summary.Pending, "nothing begins once it is cancelled")
	done, err := s.runner.CancelItems(t.Context(), s.key())
	require.NoError(t, err)
	require.True(t, done)
	require.Zero(t, s.record(t).State.Summary.Pending)
	step(post)
	require.Equal(t, "cancelled", s.record(t).Status)
}
