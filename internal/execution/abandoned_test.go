package execution_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/liveness"
	"tranche/internal/pgtest"
	"tranche/queries"
)

// leased inserts an execution as a process left it.
func leased(t *testing.T, db queries.DBTX, tenant, holder uuid.UUID, status string, batch *uuid.UUID) uuid.UUID {
	t.Helper()
	id := pgtest.NewID(t)
	var token *uuid.UUID
	if holder != uuid.Nil {
		token = new(uuid.New())
	}
	_, err := db.Exec(t.Context(), `INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, status, created_at, batch_id, lease_token, lease_process_id)
		VALUES ($1, $2, $1, 'a', 1, 'tester', $3, now(), $4, $5, CASE WHEN $5::uuid IS NOT NULL THEN $6::uuid END)`, id, tenant, status, batch, token, holder)
	require.NoError(t, err)
	return id
}

// known inserts a process that was last heard of some time ago.
func (b *bundle) known(t *testing.T, silent time.Duration) uuid.UUID {
	t.Helper()
	id := uuid.New()
	_, err := b.pool.Exec(t.Context(), `INSERT INTO processes (id, role, heartbeat_at) VALUES ($1, 'all', now() - make_interval(secs => $2))`, id, silent.Seconds())
	require.NoError(t, err)
	return id
}

func (b *bundle) begin(t *testing.T) pgx.Tx {
	t.Helper()
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (b *bundle) takeBack(t *testing.T, dead liveness.Dead) (n int64) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) (err error) {
		n, err = execution.RecoverAbandoned(t.Context(), tx, dead)
		return err
	}))
	return n
}

// jobs are the executions that available jobs go on with.
func (b *bundle) jobs(t *testing.T) (executions []uuid.UUID) {
	t.Helper()
	rows, err := b.pool.Query(t.Context(), `SELECT (args ->> 'execution_id')::uuid FROM river.river_job j
		JOIN executions e ON e.id = (args ->> 'execution_id')::uuid AND e.tenant_id = (args ->> 'tenant_id')::uuid
		WHERE j.kind = 'task_execution' AND j.queue = 'execution' AND j.state = 'available' AND j.max_attempts = 1000`)
	require.NoError(t, err)
	executions, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	require.NoError(t, err)
	return executions
}

// leases are the executions that have one.
func (b *bundle) leases(t *testing.T) (executions []uuid.UUID) {
	t.Helper()
	rows, err := b.pool.Query(t.Context(), `SELECT id FROM executions WHERE lease_token IS NOT NULL AND lease_process_id IS NOT NULL`)
	require.NoError(t, err)
	executions, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	require.NoError(t, err)
	return executions
}

// What dead processes held of any tenant is taken back, once, and nothing else.
func TestTakeBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	neighbour := pgtest.Tenant(t, b.pool).ID
	alive, ended, silent, unknown := b.known(t, 0), b.known(t, time.Second), b.known(t, 21*time.Second), uuid.New()
	batch := pgtest.NewID(t)
	of := func(tenant, holder uuid.UUID) uuid.UUID { return leased(t, b.pool, tenant, holder, "running", nil) }
	ofEnded, ofEndedToo, resumed := of(b.tenant, ended), of(neighbour, ended), of(b.tenant, ended)
	ofSilent, ofUnknown := of(neighbour, silent), of(b.tenant, unknown)
	of(b.tenant, uuid.Nil) // waits, and has its job
	rest := []uuid.UUID{
		of(b.tenant, alive), of(neighbour, alive),
		leased(t, b.pool, b.tenant, ended, "running", &batch), leased(t, b.pool, neighbour, unknown, "running", &batch),
	}
	all := append([]uuid.UUID{ofEnded, ofEndedToo, resumed, ofSilent, ofUnknown}, rest...)

	require.Zero(t, b.takeBack(t, liveness.Dead{}))
	require.ElementsMatch(t, all, b.leases(t))
	dead := liveness.Dead{IDs: []uuid.UUID{ended}, Requeued: []uuid.UUID{resumed}}
	require.EqualValues(t, 2, b.takeBack(t, dead))
	require.ElementsMatch(t, []uuid.UUID{ofEnded, ofEndedToo}, b.jobs(t))
	require.ElementsMatch(t, append([]uuid.UUID{ofSilent, ofUnknown}, rest...), b.leases(t))
	require.Zero(t, b.takeBack(t, dead), "once")

	require.EqualValues(t, 2, b.takeBack(t, liveness.Dead{Expired: true}))
	require.ElementsMatch(t, []uuid.UUID{ofEnded, ofEndedToo, ofSilent, ofUnknown}, b.jobs(t))
	require.ElementsMatch(t, rest, b.leases(t))
	require.Zero(t, b.takeBack(t, liveness.Dead{Expired: true}))
}

// What a backend of a dead process commits after the look is found by the next.
func TestTakeBackFindsWhatIsCommittedLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dead := b.known(t, 21*time.Second)
	late := b.begin(t)
	id := leased(t, late, b.tenant, dead, "running", nil)
	require.Zero(t, b.takeBack(t, liveness.Dead{IDs: []uuid.UUID{dead}}))
	require.NoError(t, late.Commit(t.Context()))
	require.EqualValues(t, 1, b.takeBack(t, liveness.Dead{Expired: true}))
	require.Equal(t, []uuid.UUID{id}, b.jobs(t))
}

// Of several that take back at once none waits for another, or for whoever else
// writes an execution: each execution gets one job.
func TestSeveralTakeBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dead := b.known(t, 21*time.Second)
	var ids []uuid.UUID
	for range 20 {
		ids = append(ids, leased(t, b.pool, b.tenant, dead, "running", nil))
	}
	take := func(tx pgx.Tx) int64 {
		n, err := execution.RecoverAbandoned(t.Context(), tx, liveness.Dead{Expired: true})
		require.NoError(t, err)
		return n
	}
	cancels, first, second := b.begin(t), b.begin(t), b.begin(t)
	_, err := cancels.Exec(t.Context(), `SELECT FROM executions WHERE id = $1 FOR UPDATE`, ids[0])
	require.NoError(t, err)
	require.EqualValues(t, 19, take(first))
	require.Zero(t, take(second))
	require.NoError(t, first.Commit(t.Context()))
	require.NoError(t, second.Commit(t.Context()))
	require.ElementsMatch(t, ids[1:], b.jobs(t))
	require.NoError(t, cancels.Rollback(t.Context()))
	require.EqualValues(t, 1, b.takeBack(t, liveness.Dead{Expired: true}))
	require.ElementsMatch(t, ids, b.jobs(t))
}

// An execution that its process recorded itself and could not bring to its end has
// no job until it is let go.
func TestRecordedExecutionGetsAJobAfterAnError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	close(b.target.let)
	req := b.calling(t, "")
	_, err := b.pool.Exec(t.Context(), "ALTER TABLE executions ADD CONSTRAINT refused CHECK (status <> 'completed')")
	require.NoError(t, err)
	_, err = s.Run(t.Context(), req, 0)
	require.ErrorContains(t, err, "refused")
	b.goesOn(t, s, 2)
}

// goesOn waits until the one execution is left to a job and brings it to its end,
// after which so many calls have been made under its key.
func (b *bundle) goesOn(t *testing.T, s *execution.Service, calls int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(b.jobs(t)) == 1 && len(b.leases(t)) == 0 }, 10*time.Second, 10*time.Millisecond)
	_, err := b.pool.Exec(t.Context(), "ALTER TABLE executions DROP CONSTRAINT IF EXISTS refused")
	require.NoError(t, err)
	id := b.jobs(t)[0]
	holding, err := s.Continue(t.Context(), b.tenant, id)
	require.NoError(t, err)
	require.Equal(t, execution.Held, holding)
	require.Equal(t, "completed", b.status(t, id))
	keys := b.target.seen()
	require.Len(t, keys, calls)
	for _, key := range keys {
		require.Equal(t, id.String()+"/ask", key)
	}
}

// A record of which the caller is told that it failed may be committed all the
// same, then or later, while the process lives: it is let go.
func TestUnacknowledgedRecordIsLetGo(t *testing.T) {
	t.Parallel()
	away := fault.New(fault.Unavailable, "the database cannot be reached")
	for name, around := range map[string]func(insert func() error) error{
		"at once": func(insert func() error) error {
			if err := insert(); err != nil {
				return err
			}
			return away
		},
		"later": func(insert func() error) error {
			time.AfterFunc(200*time.Millisecond, func() { _ = insert() })
			return away
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s, _ := b.process(t)
			close(b.target.let)
			req := b.calling(t, "")
			s.AroundInserts(around)
			_, err := s.Run(t.Context(), req, 0)
			require.ErrorIs(t, err, fault.Unavailable)
			b.goesOn(t, s, 1)
		})
	}
}

// A shared statement that breaks when it is committed is repeated for each execution, and
// refused then because that is there: they are let go too.
func TestRepeatedRecordIsLetGo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	req := b.calling(t, "")
	const many = 3
	statements := 0
	s.AroundInserts(func(insert func() error) error {
		if statements++; statements == 1 {
			require.Eventually(t, func() bool { return s.Queued() == many }, 10*time.Second, time.Millisecond)
		}
		if err := insert(); err != nil || statements != 2 {
			return err
		}
		panic("committed")
	})
	var callers sync.WaitGroup
	for range 1 + many {
		callers.Go(func() { _, _ = s.Run(t.Context(), req, 0) })
	}
	callers.Wait()
	require.Eventually(t, func() bool { return len(b.jobs(t)) == many && len(b.leases(t)) == 0 }, 10*time.Second, 10*time.Millisecond)
}

// A process that is found dead in an effect, and lives, can write nothing more: its
// caller is told what another made of it.
func TestTakeBackFences(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, kill := b.process(t)
	second, _ := b.process(t)
	req := b.calling(t, "")
	ended := make(chan string, 1)
	go func() {
		e, err := first.Run(context.Background(), req, 0)
		ended <- fmt.Sprint(e.Status, err)
	}()
	<-b.target.called
	require.Empty(t, b.jobs(t))
	kill()
	require.EqualValues(t, 1, b.takeBack(t, liveness.Dead{Expired: true}))
	close(b.target.let)
	id := b.jobs(t)[0]
	select {
	case <-ended:
		t.Fatal("it wrote without a lease")
	case <-time.After(100 * time.Millisecond):
	}
	_, err := second.Continue(t.Context(), b.tenant, id)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(engine.StatusCompleted, nil), <-ended)
}
