package execution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/queries"
)

// Stored reads the stored state of an execution, of which an empty text is that of one
// that has not begun, and links the plan with the versions that the execution began with.
func (s *Service) Stored(ctx context.Context, tenantID, id uuid.UUID, plan *workflow.Plan, text []byte) (*workflow.Plan, *engine.State, error) {
	state := engine.NewState(plan, id.String())
	if len(text) > 0 {
		if err := json.Unmarshal(text, state); err != nil {
			return nil, nil, fmt.Errorf("read the state of execution %s: %w", id, err)
		}
	}
	plan, err := s.Catalog.Link(ctx, tenantID, plan, state.Pins)
	return plan, state, err
}

// plan returns the plan of an execution; fault.NotFound if there is none.
func (s *Service) plan(ctx context.Context, tenantID, id uuid.UUID) (*workflow.Plan, error) {
	row, err := s.reads.Write(ctx, smallItems, reference{tenantID, id})
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, errUnknown
	}
	_, plan, err := s.Catalog.Plan(ctx, tenantID, row.WorkflowID)
	return plan, err
}

func getForUpdate(ctx context.Context, tx pgx.Tx, tenantID, id uuid.UUID) (queries.ExecutionGetForUpdateRow, error) {
	row, err := queries.New().ExecutionGetForUpdate(ctx, tx, queries.ExecutionGetForUpdateParams{TenantID: tenantID, ID: id})
	if err != nil {
		return row, readError(err)
	}
	return row, nil
}

func readError(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return errUnknown
	}
	return postgres.Translate(err)
}

// errStatus refuses what an execution's status forbids (decisions 1.9).
func errStatus(reason string) error {
	return fault.New(fault.Invalid, "%s", reason).WithSubCode(fault.InvalidExecutionStatus)
}
