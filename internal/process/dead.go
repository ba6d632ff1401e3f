package process

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/postgres"
	"tranche/queries"
)

// Limits of the look at what processes left behind. A process that is found dead
// is looked after at once; the look that nothing gives cause for finds what a
// backend of it committed later, and what is held by a process that nobody knows.
const (
	lookInterval = time.Minute
	// lookShare bounds what it takes to one second of so many, but that it comes once in
	// lookIntervalMax at least.
	lookShare       = 1000
	lookIntervalMax = time.Hour
	lookTimeMax     = 8 * time.Second // less than awayAfter: heartbeats wait for it
	// lostAfter is how long after a job was given to this process it is lost if it is
	// not worked on: a steady one begins it, and its end is told, within moments.
	lostAfter = steadyAfter
)

// Dead says whose hold on work ends.
type Dead struct {
	// IDs are processes that were found dead just now.
	IDs []uuid.UUID
	// Unheard says that every other counts too that has not been heard of for
	// DeadAfter, also one that nobody knows.
	Unheard bool
	// Resumed are the executions whose jobs have been given back.
	Resumed []uuid.UUID
}

// Free ends the hold of dead processes on what has no job of its own, and gives it
// one, in the transaction that finds them dead. It returns how much there was.
type Free func(ctx context.Context, tx pgx.Tx, dead Dead) (int64, error)

// takeBack takes back what processes held whose session has ended and, if this
// process has long been steady, those that have not been heard of.
func (p *Process) takeBack(ctx context.Context, isSteady bool) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeMax)
	defer cancel()
	dead, err := queries.New().SysProcessListDead(ctx, p.pool, queries.SysProcessListDeadParams{
		SilentSeconds: silentAfter.Seconds(), DeadAfterSeconds: DeadAfter.Seconds(), SinceLookSeconds: time.Since(p.looked).Seconds(),
		IsSteady: isSteady, IsFirstSession: !p.hasLostSession,
	})
	if err != nil {
		return err
	}
	if len(dead) > 0 || isSteady && time.Now().After(p.lookAt) {
		p.look(ctx, dead, isSteady)
		return nil
	}
	jobs, err := p.jobsOf(ctx, p.pool, Dead{Unheard: isSteady})
	p.tell(ctx, len(jobs), 0)
	return err
}

// look takes everything back in one transaction, which also makes known that the
// given processes are dead: if it fails, they are found once more.
func (p *Process) look(ctx context.Context, dead []uuid.UUID, isSteady bool) {
	begun := time.Now()
	var jobs int
	var freed int64
	err := postgres.InTx(ctx, p.pool, func(tx pgx.Tx) error {
		q := queries.New()
		ended, err := q.SysProcessEnd(ctx, tx, queries.SysProcessEndParams{
			Ids: dead, SilentSeconds: silentAfter.Seconds(), DeadAfterSeconds: DeadAfter.Seconds(),
		})
		if err != nil {
			return err
		}
		of := Dead{IDs: ended, Unheard: isSteady}
		if of.Resumed, err = p.jobsOf(ctx, tx, of); err != nil {
			return err
		}
		jobs = len(of.Resumed)
		if freed, err = p.free(ctx, tx, of); err != nil || !isSteady {
			return err
		}
		return q.SysProcessForget(ctx, tx)
	})
	if isSteady {
		p.lookAt = time.Now().Add(min(max(lookInterval, lookShare*time.Since(begun)), lookIntervalMax))
	}
	if err != nil {
		p.log.WarnContext(ctx, "cannot take back what dead processes held, trying again", "error", err)
		return
	}
	if isSteady {
		p.looked = begun
	}
	p.tell(ctx, jobs, freed)
}

func (p *Process) tell(ctx context.Context, jobs int, executions int64) {
	if jobs > 0 || executions > 0 {
		p.log.WarnContext(ctx, "took back what nobody works on", "jobs", jobs, "executions", executions)
	}
}

// jobsOf gives the running jobs of dead processes back, and those of this one that it
// does not work on, and returns the executions that they are about.
func (p *Process) jobsOf(ctx context.Context, db queries.DBTX, dead Dead) ([]uuid.UUID, error) {
	if len(dead.IDs) == 0 && !dead.Unheard {
		return nil, nil
	}
	ids := make([]string, len(dead.IDs))
	for i, id := range dead.IDs {
		ids[i] = id.String()
	}
	return queries.New().SysJobsOfDeadProcesses(ctx, db, queries.SysJobsOfDeadProcessesParams{
		ProcessIds: ids, IsUnheard: dead.Unheard, DeadAfterSeconds: DeadAfter.Seconds(),
		AskerID: p.ID.String(), WorkedOn: p.working.ids(), LostAfterSeconds: lostAfter.Seconds(),
	})
}
