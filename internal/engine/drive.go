package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"tranche/internal/expression"
	"tranche/internal/fault"
	"tranche/internal/workflow"
)

// errTaskTimeout is the cause with which the context of a task ends after its timeoutMs.
var errTaskTimeout = errors.New("the task took longer than its timeoutMs")

// signalPoll is how often a drive that is busy otherwise looks for signals.
const signalPoll = time.Second

// drive is one call of Drive. If several effects run at once, each has a goroutine that
// shares only the channel of reports with the drive.
type drive struct {
	*Runner
	run        *Run
	checkpoint Checkpoint
	root       scope
	buffer     actionBuffer
	pure       workflow.Call // of the step without effects that runs

	goroutines sync.WaitGroup // of the effects
	reports    chan event     // of the effects
	effects    []*effect      // those that run
	ready      []action       // effects that begin once a state that says so is durable
	over       chan struct{}  // closed when the drive stops reading reports
	alone      func() event   // the one effect that begins, which needs no goroutine of its own
	storedWait time.Time      // the wait that the last checkpoint holds
	measured   int            // bytes of results that the state held when all were measured
	unmeasured int            // bytes of those that came since then
	heaviest   int            // the most that both were together
}

// effect is an effect that runs.
type effect struct {
	in     place
	task   int
	cancel context.CancelFunc
}

func newDrive(r *Runner, run *Run, checkpoint Checkpoint) *drive {
	d := &drive{Runner: r, run: run, checkpoint: checkpoint}
	d.root = scope{graph: run.Plan.Graph, tasks: run.State.Tasks}
	d.root.env = expression.Env{
		Input: run.Input, Custom: run.Custom, Execution: run.Execution,
		ExecutionID: run.State.ExecutionID,
	}
	d.measured = sizeOfTasks(run.State.Tasks)
	d.heaviest = d.measured
	d.addressed(&d.root)
	d.root.unread = unread(d.root.graph)
	return d
}

// inline reports whether the one action is a step without effects.
func (d *drive) inline(actions []action) bool {
	if len(actions) != 1 {
		return false
	}
	switch first := actions[0]; first.Kind {
	case actionCheck, actionItems, actionTest:
		return true
	case actionRun:
		return !d.graph(first.In).Tasks[first.Task].Program.Effect()
	case actionStop, actionWait:
	}
	return false
}

// step takes a step without effects and reports it.
func (d *drive) step(ctx context.Context, action action) event {
	scope, event := d.enter(ctx, action)
	if scope == nil {
		return event
	}
	i := action.Task
	task, state := scope.graph.Tasks[i], &scope.tasks[i]
	scope.readTasks()
	scope.env.Now, scope.env.Path = state.StartedAt, scope.prefix+task.ID
	if action.Kind == actionRun {
		d.pure = workflow.Call{Env: &scope.env, KeyAttempt: state.KeyAttempt, Attempt: state.Attempt, At: d.now()}
		return d.call(ctx, action, scope, &d.pure)
	}
	return d.ask(ctx, action, scope)
}

// ask evaluates the condition of a task, the items of a for-each or the until of a loop.
func (d *drive) ask(ctx context.Context, action action, scope *scope) (report event) {
	i, task := action.Task, scope.graph.Tasks[action.Task]
	report = event{In: action.In, Task: i}
	defer d.settle(ctx, task, &report)
	var err error
	switch action.Kind { //nolint:exhaustive // the others are no steps without effects
	case actionCheck:
		report.Kind = eventPassed
		var admitted bool
		if admitted, err = task.When.EvalBool(&scope.env); admitted {
			report.Kind = eventAdmitted
		}
		err = atMember("when", err)
	case actionItems:
		report.Kind = eventItems
		var items []any
		items, err = scope.itemsOf(i)
		report.Count = len(items)
	case actionTest:
		report.Kind = eventTested
		report.Met, err = scope.testLast(i)
		err = atMember("until", err)
	}
	if err != nil {
		report.Kind, report.Err = eventFailed, d.taskError(ctx, task, err)
	}
	return report
}

// enter returns the scope of an action's graph. If the run cannot begin, the scope is nil
// and the event holds the reason.
func (d *drive) enter(ctx context.Context, action action) (*scope, event) {
	scope, err := d.scope(ctx, action.In)
	if err != nil {
		return nil, event{Kind: eventRefused, In: action.In, Err: err, At: d.now()}
	}
	return scope, event{}
}

// collect adds the effects to those that begin next. It returns the wait among the
// actions, or the zero action.
func (d *drive) collect(actions []action) (wait action) {
	if n := len(actions); n > 0 && actions[n-1].Kind == actionWait {
		actions, wait = actions[:n-1], actions[n-1]
	}
	d.ready = append(d.ready, actions...)
	return wait
}

// begin starts the effects that are ready, after the state that says so is
// durable. It returns when the next wait is over, the execution's deadline at the
// latest, and whether the drive is suspended until then.
func (d *drive) begin(ctx context.Context, wait action) (wakeAt time.Time, suspended bool, err error) {
	effects := d.ready
	d.ready = d.ready[:0]
	wakeAt = d.run.State.Deadline
	if !wait.At.IsZero() && wait.At.Before(wakeAt) {
		wakeAt = wait.At
	}
	if len(d.effects) == 0 && len(effects) == 0 && wakeAt.Sub(d.now()) > waitMax {
		return wakeAt, true, nil
	}
	if d.checkpoint != nil && (len(effects) > 0 || !wait.At.Equal(d.storedWait)) {
		if err := d.checkpoint(ctx, d.run.State); err != nil {
			return wakeAt, false, err
		}
		d.storedWait = wait.At
	}
	if len(effects) == 1 && wait.Kind != actionWait && len(d.effects) == 0 {
		d.alone = d.prepare(ctx, effects[0])
		return wakeAt, false, nil
	}
	for _, action := range effects {
		d.start(ctx, action)
	}
	if wait.Signal && d.run.Signals != nil {
		poll := d.now()
		if len(effects) == 0 {
			poll = poll.Add(signalPoll)
		} // with effects, signals have not been read yet: poll at once
		if poll.Before(wakeAt) {
			wakeAt = poll
		}
	}
	return wakeAt, false, nil
}

// start runs an effect in a goroutine of its own.
func (d *drive) start(ctx context.Context, action action) {
	if d.reports == nil {
		d.reports, d.over = make(chan event), make(chan struct{})
	}
	ctx, cancel := context.WithCancel(ctx)
	d.effects = append(d.effects, &effect{action.In, action.Task, cancel})
	run := d.prepare(ctx, action)
	d.goroutines.Go(func() { d.send(run()) })
}

// prepare binds an effect to the current values of its expressions. The function that it
// returns is safe to run concurrently with the drive. It keeps to the time limits of the
// task and of the execution.
func (d *drive) prepare(ctx context.Context, action action) (run func() event) {
	scope, refusal := d.enter(ctx, action)
	if scope == nil {
		refusal.Task = action.Task
		return func() event { return refusal }
	}
	task, state := scope.graph.Tasks[action.Task], &scope.tasks[action.Task]
	scope.readTasks()
	env := scope.env
	env.Tasks = maps.Clone(scope.env.Tasks)
	env.Now, env.Path = state.StartedAt, scope.prefix+task.ID
	call := &workflow.Call{
		Env: &env, KeyAttempt: state.KeyAttempt, Attempt: state.Attempt, At: d.now(), AcquireMemory: d.run.AcquireMemory,
	}
	deadline := d.run.State.Deadline
	return func() event {
		limited, cancel := context.WithTimeout(ctx, deadline.Sub(call.At))
		defer cancel()
		bounded := limited
		if task.Timeout > 0 {
			bounded, cancel = context.WithTimeoutCause(limited, task.Timeout, errTaskTimeout)
			defer cancel()
		}
		event := d.call(bounded, action, scope, call)
		// The timer may be ahead of the clock: by less than a millisecond, or more
		// when the clock was set back.
		if event.Kind == eventFailed && errors.Is(limited.Err(), context.DeadlineExceeded) && event.At.Before(deadline) {
			event.At = deadline
		}
		return event
	}
}

// send reports an effect. A drive that has ended takes no reports.
func (d *drive) send(event event) {
	select {
	case d.reports <- event:
	case <-d.over:
	}
}

// wait returns the next event: the report of an effect, or a timer. A single effect runs
// in the goroutine of the drive, which saves two switches of goroutines and a timer.
func (d *drive) wait(ctx context.Context, wakeAt time.Time) event {
	if run := d.alone; run != nil {
		d.alone = nil
		return run()
	}
	timer := time.NewTimer(wakeAt.Sub(d.Clock()))
	defer timer.Stop()
	select {
	case event := <-d.reports:
		d.ended(event)
		return event
	case <-ctx.Done(): // Drive looks at it
	case <-timer.C:
	}
	at := d.now()
	if at.Before(wakeAt) && ctx.Err() == nil {
		at = wakeAt
	}
	return event{Kind: eventTimer, At: at}
}

// reported returns the report of an effect that has ended already.
func (d *drive) reported() (report event, came bool) {
	select {
	case report = <-d.reports:
		d.ended(report)
		return report, true
	default:
		return event{}, false
	}
}

// ended forgets an effect that has reported.
func (d *drive) ended(event event) {
	d.effects = slices.DeleteFunc(d.effects, func(e *effect) bool {
		mine := e.task == event.Task && slices.Equal(e.in, event.In)
		if mine {
			e.cancel()
		}
		return mine
	})
}

// end cancels the effects that still run and waits for them. Their reports are dropped.
func (d *drive) end() {
	for _, e := range d.effects {
		e.cancel()
	}
	if d.over != nil {
		close(d.over)
		d.goroutines.Wait()
	}
}

// stop cancels the effects within stopped runs and drops those that have not begun. It
// returns the other actions.
func (d *drive) stop(actions []action) []action {
	for len(actions) > 0 && actions[0].Kind == actionStop {
		run := actions[0].In
		for _, e := range d.effects {
			if e.in.within(run) {
				e.cancel()
			}
		}
		d.ready = slices.DeleteFunc(d.ready, func(a action) bool { return a.In.within(run) })
		actions = actions[1:]
	}
	return actions
}

// call runs a program and returns the event that reports its result.
func (d *drive) call(ctx context.Context, action action, scope *scope, call *workflow.Call) (report event) {
	task := scope.graph.Tasks[action.Task]
	report = event{Kind: eventCompleted, In: action.In, Task: action.Task}
	defer d.settle(ctx, task, &report)
	result, err := task.Program.Run(ctx, call)
	if err != nil {
		report.Kind, report.Err = eventFailed, d.taskError(ctx, task, err)
		return report
	}
	report.Result = result
	return report
}

// settle sets the time of an event. A panic becomes a failure of the task with an internal
// error.
func (d *drive) settle(ctx context.Context, task *workflow.Task, event *event) {
	if cause := recover(); cause != nil {
		event.Kind, event.Err = eventFailed, d.taskError(ctx, task, fault.Panicked(cause))
	}
	event.At = d.now()
}

// taskError returns the error that the workflow sees. An unexpected error is logged and
// hidden from callers.
func (d *drive) taskError(ctx context.Context, task *workflow.Task, err error) *workflow.TaskError {
	if own, ok := errors.AsType[*workflow.TaskError](err); ok {
		return own
	}
	if expr, ok := errors.AsType[*expression.Error](err); ok {
		return &workflow.TaskError{Code: workflow.CodeExpression, Message: expr.Error()}
	}
	if errors.Is(context.Cause(ctx), errTaskTimeout) {
		return &workflow.TaskError{Code: workflow.CodeTaskTimeout, Message: errTaskTimeout.Error(), Retryable: true}
	}
	if ctx.Err() == nil {
		d.Log.ErrorContext(ctx, "a task failed unexpectedly",
			slog.String("executionId", d.run.State.ExecutionID), slog.String("taskId", task.ID), slog.Any("error", err))
	}
	return &workflow.TaskError{Code: workflow.CodeInternal, Message: "an unexpected error occurred"}
}
