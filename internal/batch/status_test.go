package batch_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/server"
)

// statusGate is a service whose database refuses chosen changes of a batch's status. The jobs
// are tried again.
type statusGate struct {
	*apitest.Service
	caller *apitest.Caller
	target *target
}

// newStatusGate starts a service that only answers requests until work is called.
func newStatusGate(t *testing.T) *statusGate {
	t.Helper()
	s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
	m := &statusGate{Service: s, caller: s.Tenant(t).As(t, identity.RoleAdmin), target: newTarget(t)}
	_, err := s.Pool.Exec(t.Context(), `
		CREATE TABLE held (old_status text, new_status text);
		CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
			IF EXISTS (SELECT FROM public.held WHERE old_status = OLD.status AND new_status = NEW.status)
				AND NEW.cancel_requested_at IS NOT DISTINCT FROM OLD.cancel_requested_at THEN RAISE 'held'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER hold BEFORE UPDATE ON execution_batches FOR EACH ROW EXECUTE FUNCTION hold()`)
	require.NoError(t, err)
	publish(t, m.caller, m.target.chain("chain"))
	return m
}

func (m *statusGate) work(t *testing.T) { t.Helper(); m.Replica(t, server.RoleAll) }

// hold refuses the change of a status to the next.
func (m *statusGate) hold(t *testing.T, from, to string) {
	t.Helper()
	_, err := m.Pool.Exec(t.Context(), "INSERT INTO held VALUES ($1, $2)", from, to)
	require.NoError(t, err)
}

// release allows all changes.
func (m *statusGate) release(t *testing.T) {
	t.Helper()
	_, err := m.Pool.Exec(t.Context(), "DELETE FROM held")
	require.NoError(t, err)
}

// await polls a batch until it has a status. It makes refused jobs due immediately.
func (m *statusGate) await(t *testing.T, id, status string) record {
	t.Helper()
	return until(t, m.caller, id, func(r record) bool {
		_, err := m.Pool.Exec(t.Context(), `UPDATE river.river_job SET state = 'available', scheduled_at = now() WHERE state IN ('available', 'retryable') AND scheduled_at > now()`)
		require.NoError(t, err)
		_, err = m.Pool.Exec(t.Context(), `SELECT pg_notify('river.river_insert', '{"queue": "batch_stage"}')`)
		require.NoError(t, err)
		return r.Status == status
	})
}

// verbs are the requests that change a batch. modes are those of a retry.
var (
	modes = []string{"pre_processing", "post_processing", "failed_items", "unsuccessful_sources_items", "failed_and_unsuccessful_sources_items"}
	verbs = append([]string{"pause", "resume", "cancel"}, modes...)
)

// ask sends a request.
func (m *statusGate) ask(t *testing.T, id, verb string) *apitest.Answer {
	t.Helper()
	at := "/v1/execution-batches/" + id + "/"
	if slices.Contains(modes, verb) {
		return m.caller.Post(t, at+"retry", map[string]any{"retryMode": verb})
	}
	return m.caller.Post(t, at+verb, nil)
}

// refuses checks that a batch has a status in which every request but the named ones is a
// conflict.
func (m *statusGate) refuses(t *testing.T, id, status string, allBut ...string) {
	t.Helper()
	at := "/v1/execution-batches/" + id
	for _, verb := range verbs {
		if !slices.Contains(allBut, verb) {
			m.ask(t, id, verb).ExpectProblem(http.StatusConflict, "CONFLICT", "")
		}
	}
	require.Equal(t, status, m.caller.Get(t, at).Expect(http.StatusOK).Text("status"))
	require.Contains(t, string(m.caller.Get(t, "/v1/execution-batches?status="+status).Expect(http.StatusOK).Body), id)
}

// A batch has every status on its way to complete, and is paused and resumed in each.
func TestEveryStatus(t *testing.T) {
	t.Parallel()
	m := newStatusGate(t)
	id := start(t, m.caller, "chain", ids("A", "B", "refused"))
	during := []string{"pause", "cancel"}
	pause := func(status string) {
		t.Helper()
		m.refuses(t, id, status, during...)
		require.Equal(t, "paused", m.ask(t, id, "pause").Expect(http.StatusOK).Text("status"))
		m.refuses(t, id, "paused", "resume", "cancel")
		require.Equal(t, status, m.ask(t, id, "resume").Expect(http.StatusOK).Text("status"))
		m.refuses(t, id, status, during...)
	}
	way := []string{"pending", "pre_processing", "pre_processing_complete", "processing", "post_processing", "complete"}
	pause(way[0])
	m.target.gate = make(chan struct{})
	m.hold(t, way[1], way[2])
	m.work(t)
	for i, status := range way[1 : len(way)-1] {
		r := m.await(t, id, status)
		require.Nil(t, r.Outputs.Post.PackageID)
		pause(status)
		if status == "pre_processing" {
			require.Equal(t, "pending", r.Outputs.Pre.Result)
		} else {
			require.Equal(t, "partially_valid", r.Outputs.Pre.Result)
			require.Equal(t, 3, r.State.Summary.Total)
		}
		m.release(t)
		if i+3 < len(way) {
			m.hold(t, way[i+2], way[i+3])
		}
		if status == "processing" {
			m.target.open()
		}
	}
	r := m.await(t, id, "complete")
	require.Equal(t, [4]int{3, 2, 1, 0}, counts(r))
	require.Len(t, m.target.taken(), 2*4, "nothing is called twice")
	m.refuses(t, id, "complete", "post_processing", "failed_items", "failed_and_unsuccessful_sources_items")
}

// A batch can be cancelled in every status before its end. Its output is still written.
func TestCancelInEveryStatus(t *testing.T) {
	t.Parallel()
	for from, to := range map[string]string{
		"pending": "pre_processing", "pre_processing": "pre_processing_complete", "pre_processing_complete": "processing", "post_processing": "complete",
	} {
		for _, isPaused := range []bool{false, true} {
			t.Run(from+map[bool]string{true: ", paused"}[isPaused], func(t *testing.T) {
				t.Parallel()
				m := newStatusGate(t)
				m.hold(t, from, to)
				m.work(t)
				id := start(t, m.caller, "chain", ids("A", "B", "refused"))
				m.await(t, id, from)
				if isPaused {
					m.ask(t, id, "pause").Expect(http.StatusOK)
				}
				cancelled := m.ask(t, id, "cancel").Expect(http.StatusOK)
				require.NotEmpty(t, cancelled.Text("cancelRequestedAt"))
				m.ask(t, id, "pause").Expect(http.StatusConflict)
				m.ask(t, id, "resume").Expect(http.StatusConflict)
				r := m.await(t, id, "cancelled")
				require.Equal(t, r.State.Summary.Total, r.State.Summary.Completed+r.State.Summary.Failed)
				require.Len(t, table(t, files(t, m.caller, *r.Outputs.Post.PackageID)["results.csv"]), r.State.Summary.Total)
				switch from {
				case "pending":
					require.Zero(t, r.State.Summary.Total)
					require.Equal(t, "failed: the batch was cancelled before all items were read", r.Outputs.Pre.Result)
					m.refuses(t, id, "cancelled")
				case "post_processing":
					require.Equal(t, [4]int{3, 2, 1, 0}, counts(r))
					m.refuses(t, id, "cancelled", "failed_items", "failed_and_unsuccessful_sources_items")
				default:
					require.Zero(t, r.State.Summary.Completed)
					require.Empty(t, m.target.taken())
				}
			})
		}
	}
}

// A batch whose output cannot be written has a notice. Then its output and each group of items
// can be retried.
func TestRetryAfterOutputFailed(t *testing.T) {
	t.Parallel()
	m := newStatusGate(t)
	m.hold(t, "post_processing", "complete")
	m.work(t)
	for name, want := range map[string]struct {
		items  int
		calls  []string
		counts [4]int
	}{
		"post_processing":                       {0, nil, [4]int{3, 1, 2, 1}},
		"failed_items":                          {2, []string{"F/last"}, [4]int{3, 2, 1, 1}},
		"unsuccessful_sources_items":            {1, []string{"S/last", "S/score"}, [4]int{3, 1, 2, 0}},
		"failed_and_unsuccessful_sources_items": {3, []string{"F/last", "S/last", "S/score"}, [4]int{3, 2, 1, 0}},
	} {
		m.target.set("F/last", "S/score")
		id := start(t, m.caller, "chain", ids("F", "S", "refused"))
		r := m.await(t, id, "post_processing_failed")
		require.Equal(t, [4]int{3, 1, 2, 1}, counts(r))
		require.Len(t, m.target.taken(), 2*4)
		require.Nil(t, r.Outputs.Post.PackageID)
		at := "/v1/execution-batches/" + id
		failed := m.caller.Get(t, at).Expect(http.StatusOK)
		require.Equal(t, "OUTPUT_FAILED", failed.Text("notices[0].code"))
		require.Equal(t, "error", failed.Text("notices[0].level"))
		require.Equal(t, "the output could not be written because of an unexpected error; retry the batch with post_processing", failed.Text("notices[0].message"))
		require.Len(t, failed.Value("notices"), 1)
		m.refuses(t, id, "post_processing_failed", modes[1:]...)

		attempt := 2
		if name == "post_processing" { // it fails once more
			require.Equal(t, "post_processing", m.ask(t, id, name).Expect(http.StatusAccepted).Text("status"))
			m.await(t, id, "post_processing_failed")
			require.Len(t, m.caller.Get(t, at).Expect(http.StatusOK).Value("notices"), 2)
			attempt++
		}
		m.target.set()
		m.release(t)
		retried := m.ask(t, id, name).Expect(http.StatusAccepted)
		require.Equal(t, fmt.Sprint(want.items), retried.Text("itemsToRetry"), name)
		require.Equal(t, fmt.Sprint(attempt), retried.Text("attempt"))
		r = m.await(t, id, "complete")
		require.Equal(t, want.calls, m.target.taken(), name)
		require.Equal(t, want.counts, counts(r), name)
		require.Len(t, table(t, files(t, m.caller, *r.Outputs.Post.PackageID)["results.csv"]), 3)
		require.Nil(t, m.caller.Get(t, at).Value("outputs.wBatchPostProcessingOutput.earlierOutputPackageIds"), "none was completed")
		m.hold(t, "post_processing", "complete")
	}
}

// If the output of a cancelled batch failed, a retry writes it, and the batch ends as cancelled.
func TestRetryAfterOutputOfCancelledFailed(t *testing.T) {
	t.Parallel()
	m := newStatusGate(t)
	m.hold(t, "processing", "post_processing")
	m.hold(t, "post_processing", "cancelled")
	m.work(t)
	id := start(t, m.caller, "chain", ids("A"))
	m.await(t, id, "processing")
	m.ask(t, id, "cancel").Expect(http.StatusOK)
	m.release(t)
	m.hold(t, "post_processing", "cancelled")
	m.await(t, id, "post_processing_failed")
	m.refuses(t, id, "post_processing_failed", append([]string{"post_processing"}, modes[2:]...)...)
	m.release(t)
	m.ask(t, id, "post_processing").Expect(http.StatusAccepted)
	m.await(t, id, "cancelled")
}
