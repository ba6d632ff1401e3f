package liveness

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/postgres"
	"tranche/queries"
)

// Limits of the failure detector.
const (
	sweepInterval = time.Minute
	// sweepShare makes sweeps rarer when they are slow: at most one second of so many
	// goes into sweeps. There is one every sweepIntervalMax at least.
	sweepShare       = 1000
	sweepIntervalMax = time.Hour
	detectTimeMax    = 8 * time.Second // less than awayAfter, because heartbeats wait for it
	// lostAfter is the time after which a job that River assigned to this process is lost
	// if the process does not run it. A steady process starts a job and records its end
	// within moments.
	lostAfter = steadyAfter
)

// Dead describes the processes that lose their leases.
type Dead struct {
	// IDs are the processes that have just been found dead.
	IDs []uuid.UUID
	// Expired includes all other processes without a heartbeat in the last DeadAfter,
	// and those that the database does not know.
	Expired bool
	// Requeued are the executions whose jobs are available again.
	Requeued []uuid.UUID
}

// Recover ends the leases of dead processes on work that has no job and gives each piece
// of work a job. It runs in the transaction that marks the processes dead. It returns the
// number of leases.
type Recover func(ctx context.Context, tx pgx.Tx, dead Dead) (int64, error)

// detect looks for processes whose session has ended and, if this process is steady, for
// processes whose heartbeat is old. It recovers their work.
func (p *Process) detect(ctx context.Context, isSteady bool) error {
	ctx, cancel := context.WithTimeout(ctx, detectTimeMax)
	defer cancel()
	dead, err := queries.New().SysProcessListDead(ctx, p.pool, queries.SysProcessListDeadParams{
		SessionDeadAfterSeconds: sessionDeadAfter.Seconds(), DeadAfterSeconds: DeadAfter.Seconds(), SinceSweepSeconds: time.Since(p.sweptAt).Seconds(),
		IsSteady: isSteady, IsFirstSession: !p.hasLostSession,
	})
	if err != nil {
		return err
	}
	if len(dead) > 0 || isSteady && time.Now().After(p.sweepAt) {
		p.sweep(ctx, dead, isSteady)
		return nil
	}
	jobs, err := p.requeueJobs(ctx, p.pool, Dead{Expired: isSteady})
	p.report(ctx, len(jobs), 0)
	return err
}

// sweep recovers the work of the given processes and, if this process is steady, all other
// work that no living process holds. One transaction also marks the processes dead, so if
// it fails they are found again.
func (p *Process) sweep(ctx context.Context, ids []uuid.UUID, isSteady bool) {
	began := time.Now()
	var jobs int
	var leases int64
	err := postgres.InTx(ctx, p.pool, func(tx pgx.Tx) error {
		q := queries.New()
		marked, err := q.SysProcessMarkDead(ctx, tx, queries.SysProcessMarkDeadParams{
			Ids: ids, SessionDeadAfterSeconds: sessionDeadAfter.Seconds(), DeadAfterSeconds: DeadAfter.Seconds(),
		})
		if err != nil {
			return err
		}
		dead := Dead{IDs: marked, Expired: isSteady}
		if dead.Requeued, err = p.requeueJobs(ctx, tx, dead); err != nil {
			return err
		}
		jobs = len(dead.Requeued)
		if leases, err = p.recoverWork(ctx, tx, dead); err != nil || !isSteady {
			return err
		}
		return q.SysProcessDeleteExpired(ctx, tx)
	})
	if isSteady {
		p.sweepAt = time.Now().Add(min(max(sweepInterval, sweepShare*time.Since(began)), sweepIntervalMax))
	}
	if err != nil {
		p.log.WarnContext(ctx, "the recovery of the work of dead processes failed and will be repeated", "error", err)
		return
	}
	if isSteady {
		p.sweptAt = began
	}
	p.report(ctx, jobs, leases)
}

func (p *Process) report(ctx context.Context, jobs int, executions int64) {
	if jobs > 0 || executions > 0 {
		p.log.WarnContext(ctx, "recovered abandoned work", "jobs", jobs, "executions", executions)
	}
}

// requeueJobs makes the running jobs of dead processes available again, and those jobs of
// this process that it does not run. It returns the executions of the jobs.
func (p *Process) requeueJobs(ctx context.Context, db queries.DBTX, dead Dead) ([]uuid.UUID, error) {
	if len(dead.IDs) == 0 && !dead.Expired {
		return nil, nil
	}
	ids := make([]string, len(dead.IDs))
	for i, id := range dead.IDs {
		ids[i] = id.String()
	}
	return queries.New().SysJobRequeueAbandoned(ctx, db, queries.SysJobRequeueAbandonedParams{
		ProcessIds: ids, IncludesExpired: dead.Expired, DeadAfterSeconds: DeadAfter.Seconds(),
		AskerID: p.ID.String(), RunningJobs: p.jobs.ids(), LostAfterSeconds: lostAfter.Seconds(),
	})
}
