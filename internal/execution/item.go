package execution

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
)

// Cancelled is the end, as cancelled, of an item that waits and that no process
// holds. It is nil if that is no longer so. It has to be written like one that
// RunLeased gave; what begins meanwhile wins over it.
func (s *Service) Cancelled(ctx context.Context, tenantID, id uuid.UUID, plan *workflow.Plan) (f *Finished, err error) {
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		row, err := getForUpdate(ctx, tx, tenantID, id)
		if err != nil {
			return err
		}
		if engine.Status(row.Status) != engine.StatusRunning || row.LeaseToken != nil {
			return nil
		}
		f, err = s.cancelled(ctx, plan, tenantID, id, &row)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cancel item %s: %w", id, err)
	}
	return f, nil
}
