package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"tranche/internal/expression"
	"tranche/internal/fault"
	"tranche/internal/workflow"
)

// waitMax is the longest wait that is timed in process (contract 4.3).
const waitMax = 5 * time.Second

// ErrCancelled is the cause of a context that ends because the execution is cancelled.
// Drive then returns an outcome. If a context ends for another cause, the state stays as
// it was last stored.
var ErrCancelled = errors.New("the execution was cancelled")

// Runner drives executions. It is safe for concurrent use.
type Runner struct {
	// Clock returns the time; required.
	Clock func() time.Time
	// Log takes errors that callers do not see; required.
	Log *slog.Logger
}

// Run is one execution on its way. Drive changes State and nothing else.
type Run struct {
	Plan      *workflow.Plan
	State     *State
	Input     any
	Custom    any                   // customInput of a batch
	Execution *expression.Execution // the execution as expressions see it
	// Signals returns the payloads of the signals that have come, by the path of
	// the wait that each is for; nil if no signal can come.
	Signals func(ctx context.Context) (map[string]any, error)
	// CallbackURL returns the address that answers the wait at a path of the execution,
	// for example each[3].approve. It is nil if there is none.
	CallbackURL func(path string) (string, error)
	// AcquireMemory is passed to the execution's calls (workflow.Call); may be nil.
	// Concurrent effects call it concurrently.
	AcquireMemory func(ctx context.Context, bytes int)
}

// Verdict is how far Drive got.
type Verdict struct {
	Outcome *Outcome // nil: suspended
	// WakeAt is the time at which a suspended execution resumes. Until then only a signal
	// can change it. It is more than waitMax away.
	WakeAt time.Time
}

// Checkpoint makes a state durable. It must not keep the state.
type Checkpoint func(ctx context.Context, state *State) error

// Drive runs an execution until it ends, or until nothing can happen for longer than
// waitMax. Tasks that a dead process left running run again with the same idempotency
// keys.
//
// Drive calls checkpoint before effects begin, once for all that begin together, and
// before it waits in process. checkpoint may be nil if the plan has no effects. If
// checkpoint fails, Drive cancels the running tasks and returns the error. Drive does not
// call it before a suspended verdict: the caller stores the state in one transaction with
// the job that resumes the execution.
//
// If ctx ends, Drive cancels the running tasks and returns the cause. For the cause
// ErrCancelled it returns an outcome. A panic in Drive is returned as an error; the caller
// must then release the execution's lease.
func (r *Runner) Drive(ctx context.Context, run *Run, checkpoint Checkpoint) (verdict Verdict, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			verdict, err = Verdict{}, fault.Panicked(cause)
		}
	}()
	if run.State.Pins == nil {
		run.State.Pins = run.Plan.Pins
	}
	if len(run.State.Tasks) != len(run.Plan.Graph.Tasks) {
		return Verdict{}, fmt.Errorf("the state of execution %s has %d tasks, its plan %d",
			run.State.ExecutionID, len(run.State.Tasks), len(run.Plan.Graph.Tasks))
	}
	d := newDrive(r, run, checkpoint)
	defer d.end()
	latest := event{Kind: eventStarted, At: r.now()}
	for {
		if ctx.Err() != nil {
			if cause := context.Cause(ctx); !errors.Is(cause, ErrCancelled) {
				return Verdict{}, cause
			}
			latest = event{Kind: eventCancelled, At: r.now()}
		}
		if err := d.addSignals(ctx, &latest); err != nil {
			return Verdict{}, err
		}
		d.bound(&latest)
		actions := next(run.Plan, run.State, &latest, &d.buffer)
		if run.State.Ended() {
			outcome := conclude(run.Plan, run.State)
			run.Plan.Weight.Learn(d.heaviest, outcome.Status != StatusCompleted)
			return Verdict{Outcome: outcome}, nil
		}
		actions = d.stop(actions)
		if d.inline(actions) {
			latest = d.step(ctx, actions[0])
			continue
		}
		wait := d.collect(actions)
		// Reports that came while a state was written share the next one: each by
		// itself would write the whole state again.
		if report, came := d.reported(); came {
			latest = report
			continue
		}
		signal, came, err := d.signal(ctx, wait)
		if err != nil {
			return Verdict{}, err
		}
		if came {
			latest = signal
			continue
		}
		wakeAt, suspended, err := d.begin(ctx, wait)
		if err != nil {
			return Verdict{}, err
		}
		if suspended {
			run.Plan.Weight.Learn(d.heaviest, false)
			return Verdict{WakeAt: wakeAt}, nil
		}
		latest = d.wait(ctx, wakeAt)
	}
}

// now is the time as states keep it: UTC, whole milliseconds, rounded up so that
// no wait that is counted from it ends early.
func (r *Runner) now() time.Time {
	return r.Clock().UTC().Add(time.Millisecond - time.Nanosecond).Truncate(time.Millisecond)
}
