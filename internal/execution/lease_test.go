package execution_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/engine"
	"tranche/internal/execution"
)

func TestStartIsContinuedByAJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	close(b.target.let)

	e, err := s.Start(t.Context(), b.calling(t, ""))
	require.NoError(t, err)
	require.Equal(t, engine.StatusPending, e.Status)
	require.Equal(t, "pending", b.status(t, e.ID))
	require.Equal(t, "task_execution available", b.text(t, `SELECT kind || ' ' || state FROM river.river_job`))

	holding, err := s.Continue(t.Context(), b.tenant, e.ID)
	require.NoError(t, err)
	require.Equal(t, execution.Held, holding)
	require.Equal(t, "completed", b.status(t, e.ID))

	holding, err = s.Continue(t.Context(), b.tenant, e.ID)
	require.NoError(t, err)
	require.Equal(t, execution.Over, holding, "a job that runs twice does nothing")
	require.Len(t, b.target.seen(), 1)
}

// An execution whose end could not be written is left to the next try of its job,
// though its process lives.
func TestExecutionIsLetGoAfterAnError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	close(b.target.let)
	e, err := s.Start(t.Context(), b.calling(t, ""))
	require.NoError(t, err)
	_, err = b.pool.Exec(t.Context(), "ALTER TABLE executions ADD CONSTRAINT refused CHECK (status <> 'completed')")
	require.NoError(t, err)
	_, err = s.Continue(t.Context(), b.tenant, e.ID)
	require.ErrorContains(t, err, "refused")
	_, err = b.pool.Exec(t.Context(), "ALTER TABLE executions DROP CONSTRAINT refused")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		holding, err := s.Continue(t.Context(), b.tenant, e.ID)
		return err == nil && holding == execution.Held
	}, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, "completed", b.status(t, e.ID))
	keys := b.target.seen()
	require.Len(t, keys, 2)
	require.Equal(t, keys[0], keys[1])
}

// A process that dies in an effect is replaced; when it turns out to be alive
// after all, it can write nothing more.
func TestTakeOverAndFence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, kill := b.process(t)
	second, _ := b.process(t)
	req := b.calling(t, "")

	ended := make(chan execution.Execution, 1)
	go func() {
		e, err := first.Run(context.Background(), req, 0)
		if err != nil {
			e.Status = engine.Status(err.Error())
		}
		ended <- e
	}()
	<-b.target.called
	id := uuid.MustParse(b.text(t, `SELECT id::text FROM executions`))

	holding, err := second.Continue(t.Context(), b.tenant, id)
	require.NoError(t, err)
	require.Equal(t, execution.HeldElsewhere, holding, "its process lives")

	kill()
	taken := make(chan error, 1)
	go func() {
		_, err := second.Continue(context.Background(), b.tenant, id)
		taken <- err
	}()
	<-b.target.called
	close(b.target.let)
	require.NoError(t, <-taken)
	require.Equal(t, "completed", b.status(t, id))
	at := b.text(t, `SELECT completed_at::text FROM executions`)

	e := <-ended
	require.Equal(t, engine.StatusCompleted, e.Status, "the first caller is told the one result")
	require.Equal(t, at, b.text(t, `SELECT completed_at::text FROM executions`))
	keys := b.target.seen()
	require.Len(t, keys, 2)
	require.Equal(t, keys[0], keys[1])
}

func TestStopHandsOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, _ := b.process(t)
	second, _ := b.process(t)
	req := b.calling(t, "")
	ended := make(chan error, 1)
	go func() {
		_, err := first.Run(context.Background(), req, 0)
		ended <- err
	}()
	<-b.target.called
	now, cancel := context.WithCancel(t.Context())
	cancel()
	first.Stop(now)
	require.Error(t, <-ended)
	id := uuid.MustParse(b.text(t, `SELECT id::text FROM executions`))
	require.Equal(t, "1 available", b.text(t, `SELECT count(*) || ' ' || min(state::text) FROM river.river_job`))

	close(b.target.let)
	_, err := second.Continue(t.Context(), b.tenant, id)
	require.NoError(t, err)
	require.Equal(t, "completed", b.status(t, id))
}

// However many run, a stop hands them over in time: they share a few statements.
// One that somebody is writing meanwhile holds up no other.
func TestStopHandsManyOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	const many = 300
	statements := s.HoldReleases(many - 1)
	b.target.called = make(chan struct{}, many)
	ended := make(chan error, many)
	req := b.calling(t, "")
	for range many {
		go func() {
			_, err := s.Run(context.Background(), req, 0)
			ended <- err
		}()
	}
	for range many {
		<-b.target.called
	}
	writer, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = writer.Rollback(context.Background()) }()
	_, err = writer.Exec(t.Context(), `SELECT FROM executions WHERE id = (SELECT min(id::text)::uuid FROM executions) FOR UPDATE`)
	require.NoError(t, err)

	now, cancel := context.WithCancel(t.Context())
	cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.Stop(now)
	}()
	for range many - 1 {
		require.Error(t, <-ended)
	}
	require.Equal(t, "299 299", b.text(t, `SELECT count(*) || ' ' || count(DISTINCT args ->> 'execution_id') FROM river.river_job WHERE state = 'available'`))
	require.NoError(t, writer.Rollback(t.Context()))
	require.Error(t, <-ended)
	<-stopped
	require.Equal(t, 2, statements(), "the first one, and the rest")
	require.Equal(t, "300 300", b.text(t, `SELECT count(*) || ' ' || count(DISTINCT args ->> 'execution_id') FROM river.river_job WHERE state = 'available'`))
	require.Equal(t, "300 0", b.text(t, `SELECT count(*) || ' ' || count(lease_token) FROM executions WHERE status = 'running'`))
	close(b.target.let)
}
