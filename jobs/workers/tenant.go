package workers

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"tranche/internal/postgres"
)

// Middleware wraps the work of every job. The statements of a job see the rows of the tenant in
// its arguments. The statements of a job without a tenant see no rows, unless the worker uses
// postgres.AsSystem.
func Middleware() []rivertype.Middleware {
	return []rivertype.Middleware{river.WorkerMiddlewareFunc(asTenant)}
}

func asTenant(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
	var named struct {
		TenantID uuid.UUID `json:"tenant_id"`
	}
	if err := json.Unmarshal(job.EncodedArgs, &named); err != nil {
		return fmt.Errorf("read the tenant of job %d: %w", job.ID, err)
	}
	return work(postgres.WithTenant(ctx, named.TenantID))
}
