package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"tranche/internal/workflow"
)

// ErrCancelled is the cause with which a context is cancelled when the
// execution itself is cancelled; Drive then gives an outcome, while any other
// end of the context leaves the state as it was last stored.
var ErrCancelled = errors.New("the execution was cancelled")

// Runner drives executions. It is safe for concurrent use.
type Runner struct {
	// Clock gives the time; required.
	Clock func() time.Time
	// Log takes errors that callers do not see; required.
	Log *slog.Logger
	// CallbackURL gives the address that answers the wait of a task; nil where
	// there is none.
	CallbackURL func(executionID, taskID string) (string, error)
}

// Run is one execution on its way. State is changed by Drive.
type Run struct {
	Plan      *workflow.Plan
	State     *State
	Input     any
	Custom    any            // customInput of a batch
	Execution map[string]any // the root execution of expressions
}

// Verdict is how far Drive got.
type Verdict struct {
	Outcome *Outcome // nil: suspended
	// WakeAt is when a suspended execution goes on: nothing can happen before,
	// and it is more than 5 s away.
	WakeAt time.Time
}

// Checkpoint makes a state durable. It must not keep the state.
type Checkpoint func(ctx context.Context, state *State) error

// Drive runs an execution until it ends or nothing can happen for more than
// 5 s. A state with running tasks, left by a process that died, has them run
// again with the same idempotency keys.
//
// checkpoint is called before effects start and before a wait in process; it
// may be nil where the plan has no effects. Its error ends the drive: what runs
// is cancelled and the error returned. Before a suspended verdict it is not
// called: the caller stores the state together with the job that goes on.
func (r *Runner) Drive(ctx context.Context, run *Run, checkpoint Checkpoint) (Verdict, error) {
	return Verdict{}, nil
}
