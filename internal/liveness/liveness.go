// Package liveness makes this process known to the others, detects processes that died,
// and requeues their work. It must not know what the work is.
//
// A process has one row with a heartbeat. The row is the lease for all work of the process:
// an execution or a job belongs to the process that it names while the heartbeat is fresh.
// All processes write a heartbeat every 2 s; those that work then look for dead processes:
//
//	 5 s after the last heartbeat (sessionDeadAfter) a process is dead if its database
//	     session has ended. A killed process loses its session at once; a process that only
//	     lost its connection has a new one by then.
//	20 s after the last heartbeat (DeadAfter) it is dead in any case: it hangs, or its
//	     machine is gone.
//
// One transaction marks a process dead, makes its running jobs available again and gives a
// job to its other work (Recover). In addition:
//
//   - A job that finds its work leased by a living process checks again after 10 s
//     (RecheckAfter).
//   - About once a minute (sweepInterval) a sweep recovers all work that no living process
//     holds: rows that a backend of a dead process committed late, and rows of processes
//     that the database does not know, for example after a restore.
//   - If River assigned a job to a process 10 s ago (lostAfter) and the process does not run
//     it, because the response of the database was lost, the process requeues it itself.
//   - The row of a dead process is deleted after an hour.
//
// After an outage of the database, all processes look dead. So a process trusts its view of
// the others only when it is steady: it has written heartbeats without a break for 10 s
// (steadyAfter), in which the others write theirs too. There is one exception: a process
// that has just started and still has its first session trusts the end of another session,
// if that process wrote a heartbeat since the server started (SysProcessListDead).
//
// A suspended process that continues writes heartbeats again. Its former work has a new
// lease token or job id by then, so its writes to that work fail.
package liveness

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

// Times of the heartbeat. The package comment explains them.
const (
	heartbeatInterval = 2 * time.Second
	heartbeatTimeMax  = 4 * time.Second
	// awayAfter is the age of a process' own heartbeat after which it is not steady.
	awayAfter = 10 * time.Second
	// steadyAfter is the time after which a process that writes heartbeats is steady.
	// After a restart of the database, the others need it to write theirs: one heartbeat
	// fails, the next one connects, and each may take heartbeatTimeMax.
	steadyAfter = heartbeatInterval + 2*heartbeatTimeMax
	// sessionDeadAfter is the age of a heartbeat after which a process without a session
	// is dead.
	sessionDeadAfter = 2*heartbeatInterval + time.Second
	// DeadAfter is the age of a heartbeat after which a process is dead.
	DeadAfter = 20 * time.Second
	// RecheckAfter is the delay before a job checks again whether the process that holds
	// its work is dead.
	RecheckAfter = DeadAfter / 2
)

// Process is this process.
type Process struct {
	ID          uuid.UUID
	role        string
	works       bool
	pool        *pgxpool.Pool
	recoverWork Recover
	log         *slog.Logger
	done        chan struct{}
	stop        context.CancelFunc

	heartbeatAt time.Time // of the last heartbeat that was written
	steadySince time.Time // the first heartbeat after the last break
	jobs        runningJobs
	sweepAt     time.Time // of the next sweep
	sweptAt     time.Time // of the last sweep

	// session holds the advisory lock that ends with this process. It is nil before the
	// first heartbeat and after a heartbeat that failed.
	session *pgxpool.Conn
	// hasLostSession is true after the first session ended. The other processes may have
	// lost theirs at the same time.
	hasLostSession bool
}

// Start writes the first heartbeat and continues until Stop. The role is for operators. A
// process that works also detects dead processes; recoverWork then recovers their work.
func Start(ctx context.Context, pool *pgxpool.Pool, role string, works bool, recoverWork Recover, log *slog.Logger) (*Process, error) {
	p := &Process{ID: uuid.New(), role: role, works: works, pool: pool, recoverWork: recoverWork, log: log, done: make(chan struct{})}
	if err := p.heartbeat(ctx); err != nil {
		return nil, err
	}
	p.heartbeatAt, p.steadySince = time.Now(), time.Now()
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	go p.run(ctx)
	return p, nil
}

// Stop ends the heartbeat, deletes the row and ends all leases of this process. If that
// fails, the other processes detect that it is dead.
func (p *Process) Stop(ctx context.Context) error {
	p.stop()
	<-p.done
	p.endSession(ctx)
	return postgres.InTx(ctx, p.pool, func(tx pgx.Tx) error {
		if err := queries.New().SysProcessDelete(ctx, tx, p.ID); err != nil {
			return err
		}
		_, err := p.recoverWork(ctx, tx, Dead{IDs: []uuid.UUID{p.ID}})
		return err
	})
}

func (p *Process) run(ctx context.Context) {
	defer close(p.done)
	ticker := time.NewTicker(heartbeatInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		p.tick(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// tick writes a heartbeat and, if the process works, looks for dead processes.
func (p *Process) tick(ctx context.Context) {
	if p.session == nil || time.Since(p.heartbeatAt) > awayAfter {
		p.steadySince = time.Now()
	}
	// Stop must not cancel the heartbeat: the server could still write it, after Stop
	// has deleted the row.
	if err := p.heartbeat(context.WithoutCancel(ctx)); err != nil {
		p.log.WarnContext(ctx, "the heartbeat failed", "error", err)
		return
	}
	p.heartbeatAt = time.Now()
	if !p.works {
		return
	}
	if err := p.detect(ctx, time.Since(p.steadySince) > steadyAfter); err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "the search for dead processes failed and will be repeated", "error", err)
	}
}

// heartbeat writes the heartbeat over the session that shows that this process lives.
func (p *Process) heartbeat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeMax)
	defer cancel()
	err := p.tryHeartbeat(ctx)
	if err != nil {
		p.endSession(ctx)
		p.hasLostSession = true
	}
	return err
}

func (p *Process) tryHeartbeat(ctx context.Context) (err error) {
	q, isNew := queries.New(), p.session == nil
	if isNew {
		if p.session, err = p.pool.Acquire(ctx); err != nil {
			return err
		}
	}
	if err := q.SysProcessHeartbeat(ctx, p.session, queries.SysProcessHeartbeatParams{ID: p.ID, Role: p.role}); err != nil || !isNew {
		return err
	}
	isLocked, err := q.SysProcessLock(ctx, p.session, p.ID)
	if err == nil && !isLocked {
		err = errors.New("the previous session has not ended yet")
	}
	return err
}

// endSession closes the session, which releases its lock.
func (p *Process) endSession(ctx context.Context) {
	if p.session == nil {
		return
	}
	_ = p.session.Conn().Close(ctx) // the session is not used again, even if this fails
	p.session.Release()
	p.session = nil
}
