package execution

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/liveness"
	"tranche/queries"
)

// TakeBack is what becomes of the executions that dead processes drove
// (liveness.Recover): their leases end and each gets a job that goes on with it,
// unless its own has been given back. Items are the business of their chunks.
//
// A running execution that is no item has a job, or it has the lease of the
// process that recorded it and now drives it without one. A process never lets go
// of such a lease but together with the insertion of a job or with the end of the
// execution. So nothing is lost if every lease whose holder does not live is found
// here, whenever it was written: at once when a process is found dead; at most
// some minutes later where a statement of it was committed after that, or where
// its row is gone. Whoever comes second finds the lease another's or nobody's.
func TakeBack(ctx context.Context, tx pgx.Tx, dead liveness.Dead) (int64, error) {
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
	resumed := make(map[uuid.UUID]bool, len(dead.Requeued))
	for _, id := range dead.Requeued {
		resumed[id] = true
	}
	leases := make([]lease, len(abandoned))
	for i, e := range abandoned {
		leases[i] = lease{tenantID: e.TenantID, executionID: e.ID, token: *e.LeaseToken}
	}
	released, err := endLeases(ctx, tx, leases, resumed)
	if err != nil {
		return 0, err
	}
	var taken int64
	for _, row := range released {
		if row.HasNewJob {
			taken++
		}
	}
	return taken, nil
}
