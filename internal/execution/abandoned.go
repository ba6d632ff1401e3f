package execution

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/liveness"
	"tranche/queries"
)

// RecoverAbandoned releases the leases of dead processes (liveness.Recover) and inserts a
// job for each execution, unless its own job has been requeued. It returns the number of
// new jobs. Items of batches are recovered with their chunks.
//
// A running execution that is no item has a job, or has the lease of the process that
// recorded it. A process releases such a lease only together with the insertion of a job
// or with the end of the execution. So no execution is lost if every lease of a dead
// process is found here, even if it was committed after the process was found dead: the
// next expired check finds it some minutes later. Concurrent calls recover each lease once.
func RecoverAbandoned(ctx context.Context, tx pgx.Tx, dead liveness.Dead) (int64, error) {
	if len(dead.IDs) == 0 && !dead.Expired {
		return 0, nil
	}
	abandoned, err := queries.New().SysExecutionListAbandoned(ctx, tx, queries.SysExecutionListAbandonedParams{
		ProcessIds: dead.IDs, IncludesExpired: dead.Expired, DeadAfterSeconds: liveness.DeadAfter.Seconds(),
	})
	if err != nil {
		return 0, fmt.Errorf("list the executions of dead processes: %w", err)
	}
	if len(abandoned) == 0 {
		return 0, nil
	}
	haveJobs := make(map[uuid.UUID]bool, len(dead.Requeued))
	for _, id := range dead.Requeued {
		haveJobs[id] = true
	}
	leases := make([]lease, len(abandoned))
	for i, e := range abandoned {
		leases[i] = lease{tenantID: e.TenantID, executionID: e.ID, token: *e.LeaseToken}
	}
	released, err := releaseLeases(ctx, tx, leases, haveJobs)
	if err != nil {
		return 0, err
	}
	var recovered int64
	for _, row := range released {
		if row.HasNewJob {
			recovered++
		}
	}
	return recovered, nil
}
