package execution_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/pgtest"
)

const pureTasks = `[
	{"id":"sum","type":"transform","config":{"fields":{"total":"{{ input.a + input.b }}","same":"{{ input.a }}"}}},
	{"id":"done","type":"end","config":{"output":"{{ tasks.sum.output }}","tags":["summed"]}}]`

const pureEdges = `[{"source":"start","target":"sum"},{"source":"sum","target":"done"}]`

func TestRunWithoutEffects(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	req := b.request(t, "pure", pureTasks, pureEdges, `{"a":1.10,"b":0.2}`)
	req.Tags = []string{"mine"}

	e, err := s.Run(t.Context(), req, 0)
	require.NoError(t, err)
	require.Equal(t, engine.StatusCompleted, e.Status)
	require.Equal(t, `{"same":1.10,"total":1.3}`, string(e.Result.Output))
	require.Equal(t, `completed 200 2 0 {mine,summed}`, b.text(t,
		`SELECT concat_ws(' ', status, status_code, tasks_completed, tasks_failed, tags::text) FROM executions WHERE id = $1`, e.ID))
	require.Contains(t, b.text(t, `SELECT result::text FROM execution_payloads WHERE execution_id = $1`, e.ID), `"same":1.10`)
	require.Equal(t, `{"a":1.10,"b":0.2}`, b.text(t, `SELECT input::text FROM execution_payloads WHERE execution_id = $1`, e.ID))
	require.Equal(t, "0", b.text(t, `SELECT count(*)::text FROM river.river_job`))
}

// A synchronous execution without effects costs one transaction, the database
// itself says: what a pool of its own committed, counted once that is closed.
func TestRunWithoutEffectsIsOneTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := b.request(t, "pure", pureTasks, pureEdges, `{"a":1,"b":2}`)
	committed := func() (n int64) {
		_, err := b.pool.Exec(t.Context(), `SELECT pg_stat_clear_snapshot()`)
		require.NoError(t, err)
		require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan(&n))
		return n
	}
	run := func(times int) int64 {
		own := pgtest.OpenPool(t, b.pool.Config().ConnString())
		defer own.Close()
		quiet := *b
		quiet.pool = own
		before := committed()
		s, _ := quiet.process(t)
		for range times {
			_, err := s.Run(t.Context(), req, 0)
			require.NoError(t, err)
		}
		own.Close()
		time.Sleep(100 * time.Millisecond) // the closed connections report as they exit
		return committed() - before
	}
	const times = 200
	idle := run(0)
	// The reading itself commits too, and so does autovacuum where it comes by; a
	// second transaction for each run would double the number.
	require.InDelta(t, times, run(times)-idle, times/4)
}

func TestRunWithEffect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	close(b.target.let)

	e, err := s.Run(t.Context(), b.calling(t, ""), 0)
	require.NoError(t, err)
	require.Equal(t, engine.StatusCompleted, e.Status)
	require.Equal(t, `{"said":1.10}`, string(e.Result.Output))
	require.Equal(t, []string{e.ID.String() + "/ask"}, b.target.seen())
	require.Equal(t, "completed", b.status(t, e.ID))
	require.Equal(t, "0", b.text(t, `SELECT count(*)::text FROM river.river_job`), "it has none")
	require.Equal(t, "true", b.text(t, `SELECT (lease_token IS NULL)::text FROM executions WHERE id = $1`, e.ID))
}

func TestFailureOfAnEffectIsAResult(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	b.target.status = http.StatusBadRequest
	close(b.target.let)

	e, err := s.Run(t.Context(), b.calling(t, ""), 0)
	require.NoError(t, err)
	require.Equal(t, engine.StatusFailed, e.Status)
	require.False(t, e.Result.IsSuccess)
	require.Equal(t, http.StatusBadGateway, e.Result.StatusCode)
	require.EqualValues(t, "EXTERNAL_SERVICE_ERROR", e.Result.ErrorSubCode)
	require.NotNil(t, e.Result.ErrorMessage)
	require.Equal(t, "{}", string(e.Result.Output))
	require.Equal(t, "failed", b.status(t, e.ID))
}

func TestWaitRunsOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)

	e, err := s.Run(t.Context(), b.calling(t, ""), 50*time.Millisecond)
	require.NoError(t, err)
	require.Nil(t, e.Result)
	require.Equal(t, "running", b.status(t, e.ID))
	close(b.target.let)
	require.Eventually(t, func() bool { return b.status(t, e.ID) == "completed" }, 10*time.Second, 10*time.Millisecond)
}

func TestCallerWhoLeavesStopsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-b.target.called
		leave()
	}()
	_, err := s.Run(ctx, b.calling(t, ""), time.Minute)
	require.ErrorIs(t, err, context.Canceled)
	close(b.target.let)
	require.Eventually(t, func() bool {
		return b.text(t, `SELECT count(*)::text FROM executions WHERE status = 'completed'`) == "1"
	}, 10*time.Second, 10*time.Millisecond)
}

// Without a bound for the wait the execution runs on the caller's goroutine, to
// its end.
func TestCallerWhoLeavesStopsNothingWithoutABound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-b.target.called
		leave()
		close(b.target.let)
	}()
	e, err := s.Run(ctx, b.calling(t, ""), 0)
	require.NoError(t, err)
	require.Equal(t, engine.StatusCompleted, e.Status)
	require.Equal(t, "completed", b.status(t, e.ID))

	e, err = s.Run(ctx, b.request(t, "pure", pureTasks, pureEdges, `{"a":1,"b":2}`), 0)
	require.NoError(t, err, "nor one without effects")
	require.Equal(t, "completed", b.status(t, e.ID))
}

// A backoff of more than 5 s holds no process: a job goes on with it then.
func TestLongBackoffIsAJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	b.target.status = http.StatusServiceUnavailable
	close(b.target.let)

	e, err := s.Run(t.Context(), b.calling(t, `,"retry":{"maxAttempts":2,"initialDelayMs":40000,"maxDelayMs":40000,"jitter":0}`), time.Second)
	require.NoError(t, err)
	require.Nil(t, e.Result)
	require.Equal(t, "1 scheduled true", b.text(t,
		`SELECT count(*) || ' ' || min(state::text) || ' ' || bool_and(scheduled_at > now() + interval '30 s') FROM river.river_job`))
	require.Equal(t, "running true", b.text(t, `SELECT status || ' ' || (lease_token IS NULL)::text FROM executions`))

	holding, err := s.Continue(t.Context(), b.tenant, e.ID)
	require.NoError(t, err)
	require.Equal(t, execution.Held, holding)
	require.Len(t, b.target.seen(), 1, "an early job does not end the wait")
	require.Equal(t, "running", b.status(t, e.ID))
}

func TestInactiveWorkflowRecordsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	close(b.target.let)
	for name, req := range map[string]execution.Request{
		"pure":   b.request(t, "pure", pureTasks, pureEdges, `{"a":1,"b":2}`),
		"effect": b.calling(t, ""),
	} {
		_, err := b.catalog.Archive(t.Context(), b.tenant, req.WorkflowID)
		require.NoError(t, err)
		_, err = s.Run(t.Context(), req, 0)
		require.ErrorIs(t, err, execution.ErrNotActive, name)
		_, err = s.Start(t.Context(), req)
		require.True(t, errors.Is(err, execution.ErrNotActive), name)
	}
	require.Empty(t, b.target.seen())
	require.Equal(t, "0 0", b.text(t, `SELECT (SELECT count(*) FROM executions) || ' ' || (SELECT count(*) FROM river.river_job)`))
}
