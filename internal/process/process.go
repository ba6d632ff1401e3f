// Package process keeps this process known to the others and gives back the
// work of processes that died. One row and one small write every few seconds
// stand for all the leases a process holds: an execution or a job belongs to
// the process it names for as long as that process' heartbeat is fresh. It
// must not know what the work is.
package process

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/queries"
)

// Limits of the heartbeat. A process that dies is found dead after DeadAfter
// and its jobs are available again one beat later: within 45 s in all.
const (
	beatInterval = 5 * time.Second
	beatTimeout  = 4 * time.Second
	// DeadAfter is how long after its last heartbeat a process counts as dead.
	DeadAfter = 20 * time.Second
	// LookAgainAfter is when to look again at work whose process lived: half of
	// DeadAfter, so that a death just after the look is found in time.
	LookAgainAfter = DeadAfter / 2
)

// Process is this process among the others.
type Process struct {
	ID   uuid.UUID
	role string
	pool *pgxpool.Pool
	log  *slog.Logger
	done chan struct{}
	stop context.CancelFunc
}

// Start writes the first heartbeat and keeps beating until Stop. Role is all,
// api or worker; processes that work also give back the jobs of dead ones.
func Start(ctx context.Context, pool *pgxpool.Pool, role string, log *slog.Logger) (*Process, error) {
	p := &Process{ID: uuid.New(), role: role, pool: pool, log: log, done: make(chan struct{})}
	if err := p.beat(ctx); err != nil {
		return nil, err
	}
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	go p.run(ctx)
	return p, nil
}

// Stop ends the heartbeat and removes the row: whatever this process still
// held is free at once.
func (p *Process) Stop(ctx context.Context) error {
	p.stop()
	<-p.done
	return queries.New().SysProcessDelete(ctx, p.pool, p.ID)
}

func (p *Process) run(ctx context.Context) {
	defer close(p.done)
	ticker := time.NewTicker(beatInterval)
	defer ticker.Stop()
	// After the database or this process was away, every other process may
	// look dead; none is taken for dead until all had the time to beat again.
	steadySince, beaten := time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if time.Since(beaten) > 2*beatInterval {
			steadySince = time.Now()
		}
		err := p.beat(ctx)
		if err == nil && p.role != "api" && time.Since(steadySince) > DeadAfter {
			err = p.takeBack(ctx)
		}
		if errors.Is(err, context.Canceled) {
			return
		}
		if err != nil {
			p.log.WarnContext(ctx, "heartbeat failed", "error", err)
			continue
		}
		beaten = time.Now()
	}
}

func (p *Process) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	return queries.New().SysProcessBeat(ctx, p.pool, queries.SysProcessBeatParams{ID: p.ID, Role: p.role})
}

func (p *Process) takeBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	n, err := queries.New().SysJobsOfDeadProcesses(ctx, p.pool, DeadAfter.Seconds())
	if err != nil {
		return err
	}
	if n > 0 {
		p.log.WarnContext(ctx, "took back the jobs of dead processes", "jobs", n)
	}
	return queries.New().SysProcessDeleteDead(ctx, p.pool)
}
