package execution

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"tranche/jobs"
	"tranche/queries"
)

// lease is what a process holds while it drives an execution.
type lease struct {
	tenantID, executionID, token uuid.UUID
}

func (l lease) tenant() uuid.UUID { return l.tenantID }

func (l lease) job() jobs.TaskExecution {
	return jobs.TaskExecution{TenantID: l.tenantID, ExecutionID: l.executionID}
}

// releaseAll gives up leases in one statement and leaves each execution to a job that
// is due at once. It returns 1 for each, or 0 where the lease was lost.
func releaseAll(ctx context.Context, db queries.DBTX, leases []lease) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, handOverTimeMax)
	defer cancel()
	params := queries.SysExecutionReleaseParams{
		JobKind: jobs.TaskExecution{}.Kind(), JobQueue: jobs.QueueExecution, JobAttemptsMax: jobs.AttemptsMax,
		JobChannel: jobs.InsertChannel, JobNotice: jobs.InsertNotice(jobs.QueueExecution),
	}
	for _, l := range leases {
		args, err := json.Marshal(l.job())
		if err != nil {
			return nil, fmt.Errorf("write the job of execution %s: %w", l.executionID, err)
		}
		params.Ids = append(params.Ids, l.executionID)
		params.TenantIds = append(params.TenantIds, l.tenantID)
		params.LeaseTokens = append(params.LeaseTokens, l.token)
		params.JobsArgs = append(params.JobsArgs, string(args))
	}
	released, err := queries.New().SysExecutionRelease(ctx, db, params)
	if err != nil {
		return nil, fmt.Errorf("release %d executions: %w", len(leases), err)
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
