package execution

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/jobs"
	"tranche/queries"
)

// A process that cannot bring an execution to its end gives the lease up, so that
// others can go on:
//
//   - release inserts a job that is due at once, releaseTx one that may be due later.
//   - letGo tries until the database is there; an execution that has a job is left to the
//     next try of that.
//   - giveUp is letGo in the background, after an error.
//   - handOver is release within seconds, when the process stops.
//   - unsure is letGo after a write of which it is not known whether it took the lease.

const (
	// handOverTimeMax bounds the writes by which executions are handed over.
	handOverTimeMax = 5 * time.Second
	// leaseLateWait begins, and leaseLateMax bounds, the doubling pauses between the
	// tries to let go of a lease that was not acknowledged: they go on for a quarter
	// of an hour, where the server ends a statement after half a minute.
	leaseLateWait = time.Second
	leaseLateMax  = 10 * time.Minute
)

// lease is what a process holds while it drives an execution.
type lease struct {
	tenantID, executionID, token uuid.UUID
}

func (l lease) tenant() uuid.UUID { return l.tenantID }

// release gives the lease up and leaves the execution to a job that is due at once.
// Those that do so at the same time share a statement; one that somebody else is
// writing meanwhile waits for that by itself.
func (r *run) release(ctx context.Context) (rows int64, err error) {
	rows, err = r.service.releases.Write(ctx, smallItems, lease{tenantID: r.tenantID, executionID: r.id, token: r.token})
	if err != nil || rows > 0 {
		return rows, err
	}
	err = postgres.InTx(ctx, r.service.Pool, func(tx pgx.Tx) error {
		rows, err = r.releaseTx(ctx, tx, time.Time{})
		return err
	})
	return rows, err
}

// releaseTx gives the lease up and leaves the execution to a job at the given time,
// or now if it is zero.
func (r *run) releaseTx(ctx context.Context, tx pgx.Tx, at time.Time) (rows int64, err error) {
	rows, err = queries.New().ExecutionRelease(ctx, tx, queries.ExecutionReleaseParams{TenantID: r.tenantID, ID: r.id, LeaseToken: r.token})
	if err != nil || rows == 0 {
		return rows, err
	}
	_, err = r.service.Jobs.InsertTx(ctx, tx, jobs.TaskExecution{TenantID: r.tenantID, ExecutionID: r.id}, &river.InsertOpts{ScheduledAt: at})
	return rows, err
}

// letGo lets go of the lease for the next try of the job, or for a new job where
// there is none, which may take until the database is back.
func (r *run) letGo(ctx context.Context) error {
	ctx = postgres.WithTenant(ctx, r.tenantID)
	return r.persist(ctx, func(ctx context.Context) (int64, error) {
		if r.hasNoJob {
			return r.release(ctx)
		}
		return queries.New().ExecutionReleaseForRetry(ctx, queries.OnPartition(r.service.Pool, r.id), queries.ExecutionReleaseForRetryParams{
			TenantID: r.tenantID, ID: r.id, LeaseToken: r.token,
		})
	})
}

// giveUp returns the error that kept this process from going on, and lets go of the
// lease, which the next try, here or elsewhere, needs.
func (r *run) giveUp(err error) error {
	if err != nil && r.request == nil && !errors.Is(err, errLeaseLost) {
		r.service.running.Go(func() { _ = r.letGo(r.service.life) })
	}
	return err
}

// handOver lets others go on at once with what this process cannot finish.
func (r *run) handOver(ctx context.Context) error {
	if r.request != nil {
		return nil // nothing is recorded; the caller is told
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handOverTimeMax)
	defer cancel()
	_, err := r.release(ctx)
	return postgres.Translate(err)
}

// unsure returns the error of a write that was to take the lease. The commit may
// have succeeded all the same, or may yet, and nobody would go on with the
// execution while this process lives: so the lease is let go.
func (r *run) unsure(err error) error {
	mayCommit := errors.Is(postgres.Translate(err), fault.Unavailable) || errors.Is(err, fault.ErrPanic) ||
		postgres.IsDuplicate(err) /* of the row itself, tried again */ || errors.Is(err, context.Canceled)
	if mayCommit && !postgres.Unsent(err) {
		// Many may be in that position, so they keep neither input nor state.
		late := &run{service: r.service, tenantID: r.tenantID, id: r.id, token: r.token, hasNoJob: r.hasNoJob}
		go func() { late.letGoLate(late.service.life) }()
	}
	return err
}

// letGoLate lets go of a lease that may turn up for a while. It ends with the
// process, whose leases others take back.
func (r *run) letGoLate(ctx context.Context) {
	for wait := leaseLateWait; wait < leaseLateMax; wait *= 2 {
		if err := r.letGo(ctx); !errors.Is(err, errLeaseLost) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// LetGo leaves an item whose end RunLeased or RunItem gave, and which could not be
// written, to the next try of its job. Not when the process stops: until its end,
// after which others take the item over, it may be written still.
func (s *Service) LetGo(ctx context.Context, f *Finished) {
	if f.LeaseToken == uuid.Nil || ctx.Err() != nil {
		return
	}
	r := &run{service: s, tenantID: f.TenantID, id: f.ID, token: f.LeaseToken}
	s.running.Go(func() { _ = r.letGo(s.life) })
}

// releaseAll gives up leases in one statement and leaves each execution to a job that
// is due at once. It returns 1 for each, or 0 where the lease was lost or somebody is
// writing the execution.
func releaseAll(ctx context.Context, db queries.DBTX, leases []lease) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, handOverTimeMax)
	defer cancel()
	released, err := endLeases(ctx, db, leases, nil)
	if err != nil {
		return nil, err
	}
	type key struct{ executionID, token uuid.UUID }
	rows := make(map[key]int64, len(released))
	for _, row := range released {
		rows[key{row.ID, row.LeaseToken}] = 1
	}
	results := make([]int64, len(leases))
	for i, l := range leases {
		results[i] = rows[key{l.executionID, l.token}]
	}
	return results, nil
}

// endLeases ends leases that still are the given ones and that nobody is writing, with
// a new job for each execution but those that have one.
func endLeases(ctx context.Context, db queries.DBTX, leases []lease, haveJobs map[uuid.UUID]bool) ([]queries.SysExecutionReleaseRow, error) {
	params := queries.SysExecutionReleaseParams{
		JobKind: jobs.TaskExecution{}.Kind(), JobQueue: jobs.QueueExecution, JobAttemptsMax: jobs.AttemptsMax,
		JobChannel: jobs.InsertChannel, JobNotice: jobs.InsertNotice(jobs.QueueExecution),
	}
	for _, l := range leases {
		params.Ids = append(params.Ids, l.executionID)
		params.TenantIds = append(params.TenantIds, l.tenantID)
		params.LeaseTokens = append(params.LeaseTokens, l.token)
		params.NeedJobs = append(params.NeedJobs, !haveJobs[l.executionID])
	}
	released, err := queries.New().SysExecutionRelease(ctx, db, params)
	if err != nil {
		return nil, fmt.Errorf("end the leases of %d executions: %w", len(leases), err)
	}
	return released, nil
}
