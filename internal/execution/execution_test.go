package execution_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/pgtest"
	"tranche/internal/targettest"
)

func TestRunWithoutEffects(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	req := b.pure(t)
	req.Tags = []string{"mine"}

	e, err := s.Run(t.Context(), req, 0)
	require.NoError(t, err)
	require.Equal(t, engine.StatusCompleted, e.Status)
	require.Equal(t, `{"twice":2.2}`, string(e.Result.Output))
	require.Equal(t, `completed 200 2 0 {mine,doubled}`, b.text(t,
		`SELECT concat_ws(' ', status, status_code, tasks_completed, tasks_failed, tags::text) FROM executions WHERE id = $1`, e.ID))
	require.Equal(t, `{"n":1.10} {"twice":2.2}`, b.text(t, `SELECT concat_ws(' ', input, result -> 'output') FROM execution_payloads WHERE execution_id = $1`, e.ID))
	require.Zero(t, pgtest.CountJobs(t, b.pool, ""))
}

func TestRunWithEffect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	b.release()

	e, err := s.Run(t.Context(), b.calling(t, ""), 0)
	require.NoError(t, err)
	require.Equal(t, engine.StatusCompleted, e.Status)
	require.Equal(t, `{"said":1.10}`, string(e.Result.Output))
	require.Equal(t, []string{e.ID.String() + "/ask"}, b.target.Keys())
	require.Equal(t, "completed", b.status(t, e.ID))
	require.Zero(t, pgtest.CountJobs(t, b.pool, ""))
	require.Empty(t, b.leases(t))
}

func TestFailedEffectIsAResult(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	b.target.SetAnswer(targettest.Status(http.StatusBadRequest))
	b.release()

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

func TestRunReturnsAfterWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)

	e, err := s.Run(t.Context(), b.calling(t, ""), 50*time.Millisecond)
	require.NoError(t, err)
	require.Nil(t, e.Result)
	require.Equal(t, "running", b.status(t, e.ID))
	b.release()
	pgtest.WaitForExecution(t, b.pool, e.ID, "completed")
}

func TestCallerDisconnects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wait time.Duration
		err  error
	}{
		"with a wait":    {time.Minute, context.Canceled},
		"without a wait": {0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s, _ := b.process(t)
			ctx, disconnect := context.WithCancel(t.Context())
			req, ended := b.calling(t, ""), make(chan error, 1)
			go func() {
				_, err := s.Run(ctx, req, c.wait)
				ended <- err
			}()
			b.target.Wait(1)
			disconnect()
			if c.wait == 0 {
				b.release()
			}
			require.ErrorIs(t, <-ended, c.err)
			b.release()
			pgtest.WaitForExecution(t, b.pool, b.onlyID(t), "completed")
		})
	}
	t.Run("without effects", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		s, _ := b.process(t)
		ctx, disconnect := context.WithCancel(t.Context())
		req := b.pure(t)
		disconnect()
		e, err := s.Run(ctx, req, 0)
		require.NoError(t, err)
		require.Equal(t, "completed", b.status(t, e.ID))
	})
}

// A backoff of more than 5 s releases the lease, and a job continues the execution.
func TestLongBackoffIsAJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	b.target.SetAnswer(targettest.Status(http.StatusServiceUnavailable))
	b.release()

	e, err := s.Run(t.Context(), b.calling(t, `,"retry":{"maxAttempts":2,"initialDelayMs":40000,"maxDelayMs":40000,"jitter":0}`), time.Second)
	require.NoError(t, err)
	require.Nil(t, e.Result)
	require.Equal(t, 1, pgtest.Count(t, b.pool, "river.river_job", "state = 'scheduled' AND scheduled_at > now() + interval '30 s'"))
	require.Equal(t, "running", b.status(t, e.ID))
	require.Empty(t, b.leases(t))

	holding, err := s.Continue(t.Context(), b.tenant, e.ID)
	require.NoError(t, err)
	require.Equal(t, execution.Held, holding)
	require.Equal(t, 1, b.target.Count(), "an early job does not end the wait")
	require.Equal(t, "running", b.status(t, e.ID))
}

func TestInactiveWorkflowRecordsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	for name, req := range map[string]execution.Request{"pure": b.pure(t), "effect": b.calling(t, "")} {
		_, err := b.catalog.Archive(t.Context(), b.tenant, req.WorkflowID)
		require.NoError(t, err)
		_, err = s.Run(t.Context(), req, 0)
		require.ErrorIs(t, err, execution.ErrNotActive, name)
		_, err = s.Start(t.Context(), req)
		require.ErrorIs(t, err, execution.ErrNotActive, name)
	}
	require.Zero(t, b.target.Count())
	require.Zero(t, pgtest.Count(t, b.pool, "executions", ""))
	require.Zero(t, pgtest.CountJobs(t, b.pool, ""))
}
