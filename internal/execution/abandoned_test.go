package execution_test

import (
	"context"
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

// abandoned inserts a running execution with a lease of a process.
func abandoned(t *testing.T, db queries.DBTX, tenant, process uuid.UUID, options ...func(*pgtest.ExecutionRow)) uuid.UUID {
	t.Helper()
	options = append(options, pgtest.Leased(process), func(row *pgtest.ExecutionRow) { row.Status = "running" })
	return pgtest.Execution(t, db, tenant, options...).ID
}

func isItem(row *pgtest.ExecutionRow) { row.BatchID, row.ItemIndex = new(uuid.New()), new(int32) }

func (b *bundle) begin(t *testing.T) pgx.Tx {
	t.Helper()
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// The leases of dead processes are released once, for all tenants, and no others.
func TestRecoverAbandoned(t *testing.T) {
	t.Parallel()
	b := setup(t)
	neighbour := pgtest.Tenant(t, b.pool).ID
	alive, ended := pgtest.Instance(t, b.pool, 0), pgtest.Instance(t, b.pool, time.Second)
	silent, unknown := pgtest.Instance(t, b.pool, 21*time.Second), uuid.New()
	of := func(tenant, process uuid.UUID, options ...func(*pgtest.ExecutionRow)) uuid.UUID {
		return abandoned(t, b.pool, tenant, process, options...)
	}
	ofEnded, ofEndedToo, requeued := of(b.tenant, ended), of(neighbour, ended), of(b.tenant, ended)
	ofSilent, ofUnknown := of(neighbour, silent), of(b.tenant, unknown)
	pgtest.Execution(t, b.pool, b.tenant, func(row *pgtest.ExecutionRow) { row.Status = "running" }) // waits, and has its job
	rest := []uuid.UUID{
		of(b.tenant, alive), of(neighbour, alive), of(b.tenant, ended, isItem), of(neighbour, unknown, isItem),
	}
	all := append([]uuid.UUID{ofEnded, ofEndedToo, requeued, ofSilent, ofUnknown}, rest...)

	require.Zero(t, b.recover(t, liveness.Dead{}))
	require.ElementsMatch(t, all, b.leases(t))
	dead := liveness.Dead{IDs: []uuid.UUID{ended}, Requeued: []uuid.UUID{requeued}}
	require.EqualValues(t, 2, b.recover(t, dead))
	require.ElementsMatch(t, []uuid.UUID{ofEnded, ofEndedToo}, b.jobs(t))
	require.ElementsMatch(t, append([]uuid.UUID{ofSilent, ofUnknown}, rest...), b.leases(t))
	require.Zero(t, b.recover(t, dead), "once")

	require.EqualValues(t, 2, b.recover(t, liveness.Dead{Expired: true}))
	require.ElementsMatch(t, []uuid.UUID{ofEnded, ofEndedToo, ofSilent, ofUnknown}, b.jobs(t))
	require.ElementsMatch(t, rest, b.leases(t))
	require.Zero(t, b.recover(t, liveness.Dead{Expired: true}))
}

// A lease that is committed after its process was found dead is found by the next check.
func TestRecoverAfterLateCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dead := pgtest.Instance(t, b.pool, 21*time.Second)
	late := b.begin(t)
	id := abandoned(t, late, b.tenant, dead)
	require.Zero(t, b.recover(t, liveness.Dead{IDs: []uuid.UUID{dead}}))
	require.NoError(t, late.Commit(t.Context()))
	require.EqualValues(t, 1, b.recover(t, liveness.Dead{Expired: true}))
	require.Equal(t, []uuid.UUID{id}, b.jobs(t))
}

// Concurrent recoveries wait neither for each other nor for other transactions. Each
// execution gets one job.
func TestConcurrentRecovery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dead := pgtest.Instance(t, b.pool, 21*time.Second)
	var ids []uuid.UUID
	for range 20 {
		ids = append(ids, abandoned(t, b.pool, b.tenant, dead))
	}
	recoverTx := func(tx pgx.Tx) int64 {
		n, err := execution.RecoverAbandoned(t.Context(), tx, liveness.Dead{Expired: true})
		require.NoError(t, err)
		return n
	}
	locks, first, second := b.begin(t), b.begin(t), b.begin(t)
	pgtest.Exec(t, locks, `SELECT FROM executions WHERE id = $1 FOR UPDATE`, ids[0])
	require.EqualValues(t, 19, recoverTx(first))
	require.Zero(t, recoverTx(second))
	require.NoError(t, first.Commit(t.Context()))
	require.NoError(t, second.Commit(t.Context()))
	require.ElementsMatch(t, ids[1:], b.jobs(t))
	require.NoError(t, locks.Rollback(t.Context()))
	require.EqualValues(t, 1, b.recover(t, liveness.Dead{Expired: true}))
	require.ElementsMatch(t, ids, b.jobs(t))
}

// A synchronous execution has no job until its process cannot write its end.
func TestRecordedExecutionGetsAJobAfterAnError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	b.release()
	req := b.calling(t, "")
	allow := b.refuseEnds(t)
	_, err := s.Run(t.Context(), req, 0)
	require.ErrorContains(t, err, "refused")
	allow()
	b.continueAbandoned(t, s, 2)
}

// If the caller gets an error, the execution may be committed nevertheless, at once or
// later. Its lease is released, although its process lives.
func TestUnacknowledgedRecordIsReleased(t *testing.T) {
	t.Parallel()
	unavailable := fault.New(fault.Unavailable, "the database cannot be reached")
	for name, around := range map[string]func(insert func() error) error{
		"committed at once": func(insert func() error) error {
			if err := insert(); err != nil {
				return err
			}
			return unavailable
		},
		"committed later": func(insert func() error) error {
			time.AfterFunc(200*time.Millisecond, func() { _ = insert() })
			return unavailable
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s, _ := b.process(t)
			b.release()
			req := b.calling(t, "")
			s.AroundInserts(around)
			_, err := s.Run(t.Context(), req, 0)
			require.ErrorIs(t, err, fault.Unavailable)
			b.continueAbandoned(t, s, 1)
		})
	}
}

// A shared statement that breaks after its commit is repeated for each execution, which is
// then a duplicate. Their leases are released too.
func TestRepeatedRecordIsReleased(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	req := b.calling(t, "")
	const many = 3
	statements, begun, areQueued := 0, make(chan struct{}), make(chan struct{})
	s.AroundInserts(func(insert func() error) error {
		if statements++; statements == 1 {
			close(begun)
			<-areQueued
		}
		if err := insert(); err != nil || statements != 2 {
			return err
		}
		panic("committed")
	})
	b.release()
	var callers sync.WaitGroup
	run := func() { _, _ = s.Run(t.Context(), req, 0) }
	callers.Go(run)
	<-begun
	for range many {
		callers.Go(run)
	}
	pgtest.WaitFor(t, "the others to queue", func() bool { return s.Queued() == many })
	close(areQueued)
	callers.Wait()
	pgtest.WaitFor(t, "the leases to be released", func() bool { return len(b.jobs(t)) == many && len(b.leases(t)) == 0 })
}

// A process that is found dead during an effect, but lives, can write nothing more. Its
// caller gets the result of the process that recovered the execution.
func TestRecoveryFencesDeadProcess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, kill := b.process(t)
	second, _ := b.process(t)
	ended := goRun(first, b.calling(t, ""))
	b.target.Wait(1)
	require.Empty(t, b.jobs(t))
	kill()
	require.EqualValues(t, 1, b.recover(t, liveness.Dead{Expired: true}))
	b.release()
	select {
	case <-ended:
		t.Fatal("it wrote without a lease")
	case <-time.After(100 * time.Millisecond):
	}
	b.complete(t, second, b.jobs(t)[0])
	e := <-ended
	require.NoError(t, e.err)
	require.Equal(t, engine.StatusCompleted, e.execution.Status)
}
