// Package process keeps this process known to the others and gives back the
// work of processes that died. One row and one small write every few seconds
// stand for all the leases a process holds: an execution or a job belongs to
// the process it names for as long as that process' heartbeat is fresh. It must not
// know what the work is.
//
// This is what the others notice of a process, counted from its last heartbeat. All of
// them beat every beatInterval, and those that work look at the others with each beat,
// which therefore adds up to 2 s:
//
//	 5 s  silentAfter: it is dead if its session with the database has ended, which a
//	      process that is killed takes with it. One that only lost its connection has
//	      another by then.
//	20 s  DeadAfter: it is dead in any case: it hangs, or its machine is gone.
//
// In the transaction that finds it dead, its running jobs become available and what it
// held without a job gets one (takeBack in dead.go). Beside that,
//
//   - a job that found its work held by a process that lived looks again after 10 s
//     (LookAgainAfter);
//   - about once a minute (lookInterval) everything is taken back that is held by no
//     process that lives, though none died: what a backend of a dead one committed later,
//     and what is held by one that nobody knows, as in a restored backup;
//   - a job that the queue gave to a process 10 s ago (lostAfter) and that it does not work
//     on, because the answer got lost, is taken back by the process itself;
//   - the row of a dead process is removed after an hour.
//
// After the database was away all processes look dead. So one that had no session or no
// heartbeat of its own for a while (awayAfter) first beats for 10 s (steadyAfter), in which
// the others beat again too; before that it believes in the death of none. Only one that
// still has its first session, because it has just started, believes that a session has
// ended, of a process that was heard of since the server started (SysProcessListDead).
//
// A process that was suspended and goes on beats again and lives. What it held has
// another token or id by then, so it can write none of it.
package process

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/postgres"
	"tranche/queries"
)

// Limits of the heartbeat; the package comment has them in the order of time.
const (
	beatInterval = 2 * time.Second
	beatTimeout  = 4 * time.Second
	// awayAfter is after how long without a heartbeat of its own a process is no longer
	// steady.
	awayAfter = 10 * time.Second
	// steadyAfter is after how long of beating without a break a process is steady, and
	// believes that another is dead. Whatever the break was, a restart of the database
	// too, all that live beat again meanwhile: they notice it at their next beat and connect
	// at the one after that, each of which may run into its time limit.
	steadyAfter = beatInterval + 2*beatTimeout
	// silentAfter is how long after its last heartbeat a process counts as dead whose
	// session has ended: it had the time for another session.
	silentAfter = 2*beatInterval + time.Second
	// DeadAfter is how long after its last heartbeat a process counts as dead.
	DeadAfter = 20 * time.Second
	// LookAgainAfter is when to look again at work whose process lived: half of
	// DeadAfter, so that a death just after the look is found in time.
	LookAgainAfter = DeadAfter / 2
)

// Process is this process among the others.
type Process struct {
	ID    uuid.UUID
	role  string
	works bool
	pool  *pgxpool.Pool
	free  Free
	log   *slog.Logger
	done  chan struct{}
	stop  context.CancelFunc
	// beaten is when the last heartbeat was written. After the database or this
	// process was away, every other process may look dead; none is taken for dead
	// until all had the time to beat again, counted from steadySince.
	beaten, steadySince time.Time
	working             working
	// lookAt is when to look next at what processes left behind, though none is
	// known to have died since the last time, which was at looked.
	lookAt, looked time.Time
	// session holds the lock that ends with this process; nil before the first
	// heartbeat and after one that failed.
	session *pgxpool.Conn
	// hasLostSession says that there was a session before, with which others may have
	// lost theirs.
	hasLostSession bool
}

// Start writes the first heartbeat and keeps beating until Stop. Role is what
// operators read of the process; one that works also takes back what dead ones
// held, their jobs and what free finds.
func Start(ctx context.Context, pool *pgxpool.Pool, role string, works bool, free Free, log *slog.Logger) (*Process, error) {
	p := &Process{ID: uuid.New(), role: role, works: works, pool: pool, free: free, log: log, done: make(chan struct{})}
	if err := p.beat(ctx); err != nil {
		return nil, err
	}
	p.beaten, p.steadySince = time.Now(), time.Now()
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	go p.run(ctx)
	return p, nil
}

// Stop ends the heartbeat and removes the row together with whatever hold this
// process still had on anything. If that fails, it is found dead like any other.
func (p *Process) Stop(ctx context.Context) error {
	p.stop()
	<-p.done
	p.endSession(ctx)
	return postgres.InTx(ctx, p.pool, func(tx pgx.Tx) error {
		if err := queries.New().SysProcessDelete(ctx, tx, p.ID); err != nil {
			return err
		}
		_, err := p.free(ctx, tx, Dead{IDs: []uuid.UUID{p.ID}})
		return err
	})
}

func (p *Process) run(ctx context.Context) {
	defer close(p.done)
	ticker := time.NewTicker(beatInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		p.turn(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// turn writes a heartbeat and, if the process works, takes back what dead ones held.
func (p *Process) turn(ctx context.Context) {
	if p.session == nil || time.Since(p.beaten) > awayAfter {
		p.steadySince = time.Now()
	}
	// Not cut off by Stop: the server would write it nevertheless, perhaps after the row
	// has been removed.
	if err := p.beat(context.WithoutCancel(ctx)); err != nil {
		p.log.WarnContext(ctx, "heartbeat failed", "error", err)
		return
	}
	p.beaten = time.Now()
	if !p.works {
		return
	}
	if err := p.takeBack(ctx, time.Since(p.steadySince) > steadyAfter); err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "cannot look for what dead processes held, trying again", "error", err)
	}
}

// beat writes the heartbeat on the session that says that this process lives.
func (p *Process) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	err := p.tryBeat(ctx)
	if err != nil {
		p.endSession(ctx)
		p.hasLostSession = true
	}
	return err
}

func (p *Process) tryBeat(ctx context.Context) (err error) {
	q, isNew := queries.New(), p.session == nil
	if isNew {
		if p.session, err = p.pool.Acquire(ctx); err != nil {
			return err
		}
	}
	if err := q.SysProcessBeat(ctx, p.session, queries.SysProcessBeatParams{ID: p.ID, Role: p.role}); err != nil || !isNew {
		return err
	}
	isLocked, err := q.SysProcessLock(ctx, p.session, p.ID)
	if err == nil && !isLocked {
		err = errors.New("the session before has not ended yet")
	}
	return err
}

// endSession closes the session, which gives up its lock.
func (p *Process) endSession(ctx context.Context) {
	if p.session == nil {
		return
	}
	_ = p.session.Conn().Close(ctx) // it is of no use whatever comes of it
	p.session.Release()
	p.session = nil
}
