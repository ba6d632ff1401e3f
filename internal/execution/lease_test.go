package execution_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/pgtest"
)

func TestStartRecordsAJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	b.release()

	e, err := s.Start(t.Context(), b.calling(t, ""))
	require.NoError(t, err)
	require.Equal(t, engine.StatusPending, e.Status)
	require.Equal(t, "pending", b.status(t, e.ID))
	require.Len(t, b.jobs(t), 1)

	b.complete(t, s, e.ID)
	holding, err := s.Continue(t.Context(), b.tenant, e.ID)
	require.NoError(t, err)
	require.Equal(t, execution.Over, holding, "a job that runs twice does nothing")
	require.Equal(t, 1, b.target.Count())
}

// If an end cannot be written, the next attempt of the job can take the lease, although
// its process lives.
func TestLeaseIsReleasedAfterAnError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	b.release()
	e, err := s.Start(t.Context(), b.calling(t, ""))
	require.NoError(t, err)
	allow := b.refuseEnds(t)
	_, err = s.Continue(t.Context(), b.tenant, e.ID)
	require.ErrorContains(t, err, "refused")
	allow()
	pgtest.WaitFor(t, "the lease to be released", func() bool { return len(b.leases(t)) == 0 })
	b.complete(t, s, e.ID)
	require.Equal(t, map[string]int{e.ID.String() + "/ask": 2}, b.target.CallsByKey())
}

// A process that dies during an effect is replaced. If it turns out to be alive, it can
// write nothing more.
func TestTakeoverFencesDeadProcess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, kill := b.process(t)
	second, _ := b.process(t)
	ended := goRun(first, b.calling(t, ""))
	b.target.Wait(1)
	id := b.onlyID(t)

	holding, err := second.Continue(t.Context(), b.tenant, id)
	require.NoError(t, err)
	require.Equal(t, execution.HeldElsewhere, holding, "its process lives")

	kill()
	taken := make(chan error, 1)
	go func() {
		_, err := second.Continue(context.Background(), b.tenant, id)
		taken <- err
	}()
	b.target.Wait(2)
	b.release()
	require.NoError(t, <-taken)
	require.Equal(t, "completed", b.status(t, id))
	at := b.completedAt(t)

	e := <-ended
	require.NoError(t, e.err)
	require.Equal(t, engine.StatusCompleted, e.execution.Status, "both callers get the same result")
	require.Equal(t, at, b.completedAt(t))
	require.Equal(t, map[string]int{id.String() + "/ask": 2}, b.target.CallsByKey())
}

func TestStopHandsOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, _ := b.process(t)
	second, _ := b.process(t)
	ended := goRun(first, b.calling(t, ""))
	b.target.Wait(1)
	stopNow(t, first)
	require.Error(t, (<-ended).err)
	require.Len(t, b.jobs(t), 1)
	b.release()
	b.complete(t, second, b.onlyID(t))
}

// Many executions are handed over with a few statements. One that another transaction
// locks delays no other.
func TestStopHandsManyOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	const many = 300
	statements := s.DelayReleases(many)
	ended := make(chan error, many)
	req := b.calling(t, "")
	for range many {
		go func() {
			_, err := s.Run(context.Background(), req, 0)
			ended <- err
		}()
	}
	b.target.Wait(many)
	writer, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = writer.Rollback(context.Background()) }()
	pgtest.Exec(t, writer, `SELECT FROM executions WHERE id = (SELECT min(id::text)::uuid FROM executions) FOR UPDATE`)

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stopNow(t, s)
	}()
	for range many - 1 {
		require.Error(t, <-ended)
	}
	require.Len(t, b.jobs(t), many-1)
	require.NoError(t, writer.Rollback(t.Context()))
	require.Error(t, <-ended)
	<-stopped
	require.LessOrEqual(t, statements(), 2, "the first one, and the rest")
	require.Equal(t, many, pgtest.Value[int](t, b.pool, `SELECT count(DISTINCT args ->> 'execution_id') FROM river.river_job WHERE state = 'available'`))
	require.Equal(t, many, pgtest.CountJobs(t, b.pool, "task_execution"))
	require.Equal(t, many, pgtest.Count(t, b.pool, "executions", "status = 'running' AND lease_token IS NULL"))
}
