package execution

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"tranche/internal/postgres"
	"tranche/jobs"
	"tranche/queries"
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
	rows, err = r.service.releases.do(ctx, lease{tenantID: r.tenantID, executionID: r.id, token: r.token})
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
	rows, err = queries.New().ExecutionUnlease(ctx, tx, queries.ExecutionUnleaseParams{TenantID: r.tenantID, ID: r.id, LeaseToken: r.token})
	if err != nil || rows == 0 {
		return rows, err
	}
	_, err = r.service.Jobs.InsertTx(ctx, tx, jobs.TaskExecution{TenantID: r.tenantID, ExecutionID: r.id}, &river.InsertOpts{ScheduledAt: at})
	return rows, err
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
