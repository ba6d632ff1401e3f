package execution

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"tranche/internal/engine"
	"tranche/internal/workflow"
)

// Stored is a stored state of an execution, without a text that of one that has not
// begun, and the plan linked with the versions that the execution began with.
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

// Retryable says whether an execution of the given status can be retried by
// itself, and why or why not (decisions 5.6 and 5.7). An item is retried with
// its batch, which counts it.
func Retryable(status engine.Status, isItem bool) (retryable bool, reason string) {
	switch {
	case isItem:
		return false, "the execution is an item of a batch: retry the batch"
	case status == engine.StatusFailed:
		return true, "the execution failed"
	case status == engine.StatusCancelled:
		return true, "the execution was cancelled"
	case status == engine.StatusTimeout:
		return true, "the execution exceeded its time limit"
	default:
		return false, fmt.Sprintf("only a failed, cancelled or timed-out execution can be retried; this one is %s", status)
	}
}
