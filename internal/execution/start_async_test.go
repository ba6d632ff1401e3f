package execution_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/liveness"
)

// accept starts an execution.
func accept(t *testing.T, s *execution.Service, req execution.Request) uuid.UUID {
	t.Helper()
	e, err := s.Start(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, engine.StatusPending, e.Status)
	return e.ID
}

// ends waits until an execution is completed.
func (b *bundle) ends(t *testing.T, id uuid.UUID) {
	t.Helper()
	require.Eventually(t, func() bool { return b.status(t, id) == "completed" }, 10*time.Second, time.Millisecond)
}

func TestAcceptedExecutionsBeginAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.processAtOnce(t)
	pure := accept(t, s, b.pure(t))
	b.ends(t, pure)
	require.Equal(t, "2.2", b.text(t, `SELECT result -> 'output' ->> 'twice' FROM execution_payloads WHERE execution_id = $1`, pure))

	calling := accept(t, s, b.calling(t, ""))
	<-b.target.called
	require.Equal(t, "running t t", b.text(t, `SELECT concat_ws(' ', status, started_at >= created_at, deadline_at = started_at + interval '1 minute')
		FROM executions WHERE id = $1`, calling), "it is the caller's to look at, as any that runs")
	close(b.target.let)
	b.ends(t, calling)
	require.Equal(t, []string{calling.String() + "/ask"}, b.target.seen())
	require.Empty(t, b.leases(t))
	require.Equal(t, "0", b.text(t, "SELECT count(*)::text FROM river.river_job"))
}

// Where there is no place left, or the input is long, a job goes on.
func TestAcceptedExecutionsWithoutAPlaceWaitForJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.processAtOnce(t)
	req := b.calling(t, "")
	b.target.called = make(chan struct{}, execution.PlacesMax+1)
	begun := make([]uuid.UUID, execution.PlacesMax)
	for i := range begun {
		begun[i] = accept(t, s, req)
	}
	late := accept(t, s, req)
	require.Equal(t, []uuid.UUID{late}, b.jobs(t))
	require.Equal(t, "pending", b.status(t, late))
	close(b.target.let)
	for _, id := range begun {
		b.ends(t, id)
	}

	b.ends(t, accept(t, s, req))
	long := b.pure(t)
	long.Input["text"] = strings.Repeat("x", execution.PlaceBytesMax)
	require.ElementsMatch(t, []uuid.UUID{late, accept(t, s, long)}, b.jobs(t))
}

// What is refused, or panics, takes no place.
func TestRefusedExecutionsLeaveTheirPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.processAtOnce(t)
	req := b.pure(t)
	taken := fault.New(fault.Conflict, "taken")
	refused, broken := req, req
	refused.Recorded = func(context.Context, pgx.Tx, execution.Execution) error { return taken }
	broken.Recorded = func(context.Context, pgx.Tx, execution.Execution) error { panic("broken") }
	for range execution.PlacesMax/2 + 1 {
		_, err := s.Start(t.Context(), refused)
		require.ErrorIs(t, err, taken)
		require.Panics(t, func() { _, _ = s.Start(t.Context(), broken) })
	}
	require.Equal(t, "0", b.text(t, "SELECT count(*)::text FROM executions"))
	b.ends(t, accept(t, s, req))
	require.Empty(t, b.jobs(t))
}

// A caller is told the same in the transaction and after it, which is kept for its key.
func TestAcceptedExecutionJoinsATransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.processAtOnce(t)
	req := b.pure(t)
	var recorded execution.Execution
	req.Recorded = func(_ context.Context, _ pgx.Tx, e execution.Execution) error {
		recorded = e
		return nil
	}
	e, err := s.Start(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, e, recorded)
	b.ends(t, e.ID)
}

// What a process accepted and did not bring to its end is left to a job: by itself when
// it fails or stops, by others when it dies.
func TestAcceptedExecutionIsLeftToAJob(t *testing.T) {
	t.Parallel()
	t.Run("when it fails", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		s, _ := b.processAtOnce(t)
		close(b.target.let)
		req := b.calling(t, "")
		_, err := b.pool.Exec(t.Context(), "ALTER TABLE executions ADD CONSTRAINT refused CHECK (status <> 'completed')")
		require.NoError(t, err)
		accept(t, s, req)
		b.goesOn(t, s, 2)
	})
	t.Run("when it panics", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		s, _ := b.processAtOnce(t)
		close(b.target.let)
		var panics atomic.Int32
		s.Background.Ended = func(engine.Status, int) {
			if panics.Add(1) == 1 {
				panic("once")
			}
		}
		accept(t, s, b.calling(t, ""))
		b.goesOn(t, s, 2)
	})
	t.Run("when it stops", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		s, _ := b.processAtOnce(t)
		req := b.calling(t, "")
		id := accept(t, s, req)
		<-b.target.called
		now, cancel := context.WithCancel(t.Context())
		cancel()
		s.Background.Stop(now)
		require.Equal(t, []uuid.UUID{id}, b.jobs(t))
		require.ElementsMatch(t, []uuid.UUID{id, accept(t, s, req)}, b.jobs(t), "who stops begins nothing")
		require.Empty(t, b.leases(t))
		require.Len(t, b.target.seen(), 1)
	})
	t.Run("when it dies", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		first, kill := b.processAtOnce(t)
		second, _ := b.process(t)
		id := accept(t, first, b.calling(t, ""))
		<-b.target.called
		kill()
		require.EqualValues(t, 1, b.takeBack(t, liveness.Dead{Expired: true}))
		require.Equal(t, []uuid.UUID{id}, b.jobs(t))
		close(b.target.let)
		_, err := second.Continue(t.Context(), b.tenant, id)
		require.NoError(t, err)
		at := b.text(t, `SELECT completed_at::text FROM executions`)
		first.Background.Stop(context.Background())
		require.Equal(t, at, b.text(t, `SELECT completed_at::text FROM executions`), "the dead write nothing more")
		require.Equal(t, []string{id.String() + "/ask", id.String() + "/ask"}, b.target.seen())
	})
}

// An accepted execution that has to wait does so in the database.
func TestAcceptedExecutionThatWaitsLeavesItsPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.processAtOnce(t)
	req := b.request(t, "resting", `[{"id":"rest","type":"delay","config":{"forMs":3600000}}]`, `[{"source":"start","target":"rest"}]`, `{}`)
	for range execution.PlacesMax + 1 {
		id := accept(t, s, req)
		require.Eventually(t, func() bool {
			return b.text(t, `SELECT count(*)::text FROM river.river_job WHERE args ->> 'execution_id' = $1 AND state = 'scheduled'`, id.String()) == "1"
		}, 10*time.Second, time.Millisecond)
	}
	require.Empty(t, b.leases(t))
}
