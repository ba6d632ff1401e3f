package execution

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/process"
	"tranche/jobs"
	"tranche/queries"
)

// TakeBack is what becomes of the executions that dead processes drove
// (process.Free): their leases end and each gets a job that goes on with it,
// unless its own has been given back. Items are the business of their chunks.
//
// A running execution that is no item has a job, or it has the lease of the
// process that recorded it and now drives it without one. A process never lets go
// of such a lease but together with the insertion of a job or with the end of the
// execution. So nothing is lost if every lease whose holder does not live is found
// here, whenever it was written: at once when a process is found dead; at most
// some minutes later where a statement of it was committed after that, or where
// its row is gone. Whoever comes second finds the lease another's or nobody's.
func TakeBack(ctx context.Context, tx pgx.Tx, dead process.Dead) (int64, error) {
	if len(dead.IDs) == 0 && !dead.Unheard {
		return 0, nil
	}
	q := queries.New()
	abandoned, err := q.SysExecutionListAbandoned(ctx, tx, queries.SysExecutionListAbandonedParams{
		ProcessIds: dead.IDs, IsUnheard: dead.Unheard, DeadAfterSeconds: process.DeadAfter.Seconds(),
	})
	if err != nil {
		return 0, fmt.Errorf("list the executions of dead processes: %w", err)
	}
	if len(abandoned) == 0 {
		return 0, nil
	}
	params := queries.SysExecutionTakeBackParams{
		JobKind: jobs.TaskExecution{}.Kind(), JobQueue: jobs.QueueExecution, JobAttemptsMax: jobs.AttemptsMax,
		JobChannel: jobs.InsertChannel, JobNotice: jobs.InsertNotice(jobs.QueueExecution),
	}
	resumed := make(map[uuid.UUID]bool, len(dead.Resumed))
	for _, id := range dead.Resumed {
		resumed[id] = true
	}
	for _, e := range abandoned {
		params.Ids = append(params.Ids, e.ID)
		params.LeaseTokens = append(params.LeaseTokens, *e.LeaseToken)
		params.NeedJobs = append(params.NeedJobs, !resumed[e.ID])
	}
	taken, err := q.SysExecutionTakeBack(ctx, tx, params)
	if err != nil {
		return 0, fmt.Errorf("take back %d executions of dead processes: %w", len(abandoned), err)
	}
	return taken, nil
}
