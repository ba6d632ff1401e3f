package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync"
	"time"

	"tranche/internal/expression"
	"tranche/internal/workflow"
)

// errTaskTimeout ends the context of a task whose timeoutMs is over.
var errTaskTimeout = errors.New("the task took longer than its timeoutMs")

// drive is one use of Drive. Only its effects run beside it, and they share
// nothing with it but the channel of their reports.
type drive struct {
	*Runner
	run        *Run
	checkpoint Checkpoint

	env    expression.Env // of the steps without effects, one after the other
	unread []int          // tasks that expressions read and that env does not have yet

	goroutines sync.WaitGroup // of the effects
	reports    chan Event     // of the effects; holds one of each task
	running    int
	storedWait time.Time // the wait that the last checkpoint holds
}

func newDrive(r *Runner, run *Run, checkpoint Checkpoint) *drive {
	d := &drive{Runner: r, run: run, checkpoint: checkpoint}
	d.env = expression.Env{
		Input: run.Input, Custom: run.Custom, Execution: run.Execution,
		ExecutionID: run.State.ExecutionID, Tasks: map[string]any{},
	}
	if r.CallbackURL != nil {
		d.env.CallbackURL = func(taskID string) (string, error) {
			return r.CallbackURL(run.State.ExecutionID, taskID)
		}
	}
	for i, task := range run.Plan.Graph.Tasks {
		if task.Read {
			d.unread = append(d.unread, i)
		}
	}
	return d
}

// inline reports whether the one action is a step without effects.
func (d *drive) inline(actions []Action) (task int, ok bool) {
	if len(actions) == 0 || actions[0].Kind == ActionWait {
		return 0, false
	}
	first := actions[0]
	return first.Task, first.Kind == ActionCheck || !d.run.Plan.Graph.Tasks[first.Task].Program.Effect()
}

// step takes a step without effects and reports it.
func (d *drive) step(ctx context.Context, kind ActionKind, i int) Event {
	task, state := d.run.Plan.Graph.Tasks[i], &d.run.State.Tasks[i]
	d.readTasks()
	d.env.Now, d.env.Path = state.StartedAt, task.ID
	if kind == ActionCheck {
		event := Event{Kind: EventPassed, Task: i}
		admitted, err := task.When.EvalBool(&d.env)
		if err != nil {
			event.Kind, event.Err = EventFailed, d.taskError(ctx, task, err)
		} else if admitted {
			event.Kind = EventAdmitted
		}
		event.At = d.now()
		return event
	}
	return d.call(ctx, i, &workflow.Call{
		Env: &d.env, ExecutionID: d.env.ExecutionID, Path: task.ID,
		IdempotencyKey: d.run.State.idempotencyKey(task.ID, state),
		Attempt:        state.Attempt, At: d.now(),
	})
}

// begin starts effects, after the state that says so is durable. It returns
// when the next wait is over, the execution's deadline at the latest, and
// whether the drive is suspended until then.
func (d *drive) begin(ctx context.Context, actions []Action) (wakeAt time.Time, suspended bool, err error) {
	effects, wait := actions, time.Time{}
	wakeAt = d.run.State.Deadline
	if n := len(actions); n > 0 && actions[n-1].Kind == ActionWait {
		effects, wait = actions[:n-1], actions[n-1].At
		if wait.Before(wakeAt) {
			wakeAt = wait
		}
	}
	if d.running == 0 && len(effects) == 0 && wakeAt.Sub(d.now()) > WaitMax {
		return wakeAt, true, nil
	}
	if d.checkpoint != nil && (len(effects) > 0 || !wait.Equal(d.storedWait)) {
		if err := d.checkpoint(ctx, d.run.State); err != nil {
			return wakeAt, false, err
		}
		d.storedWait = wait
	}
	for _, action := range effects {
		d.start(ctx, action.Task)
	}
	return wakeAt, false, nil
}

// start runs an effect beside the drive.
func (d *drive) start(ctx context.Context, i int) {
	task, state := d.run.Plan.Graph.Tasks[i], &d.run.State.Tasks[i]
	d.readTasks()
	env := d.env
	env.Tasks = maps.Clone(d.env.Tasks)
	env.Now, env.Path = state.StartedAt, task.ID
	call := &workflow.Call{
		Env: &env, ExecutionID: env.ExecutionID, Path: task.ID,
		IdempotencyKey: d.run.State.idempotencyKey(task.ID, state),
		Attempt:        state.Attempt, At: d.now(),
	}
	limit := d.run.State.Deadline.Sub(call.At)
	if d.reports == nil {
		d.reports = make(chan Event, len(d.run.State.Tasks))
	}
	d.running++
	d.goroutines.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if task.Timeout > 0 {
			ctx, cancel = context.WithTimeoutCause(ctx, task.Timeout, errTaskTimeout)
			defer cancel()
		}
		d.reports <- d.call(ctx, i, call)
	})
}

// wait returns what happens next: an effect's report, or that time has passed.
func (d *drive) wait(ctx context.Context, wakeAt time.Time) Event {
	timer := time.NewTimer(wakeAt.Sub(d.Clock()))
	defer timer.Stop()
	select {
	case event := <-d.reports:
		d.running--
		return event
	case <-ctx.Done(): // Drive looks at it
	case <-timer.C:
	}
	at := d.now()
	if at.Before(wakeAt) && ctx.Err() == nil {
		at = wakeAt
	}
	return Event{Kind: EventTimer, At: at}
}

// call runs a program and reports what came of it. A panic is an internal error.
func (d *drive) call(ctx context.Context, i int, call *workflow.Call) (event Event) {
	task := d.run.Plan.Graph.Tasks[i]
	event = Event{Kind: EventCompleted, Task: i}
	defer func() {
		if cause := recover(); cause != nil {
			err := fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
			event.Kind, event.Err = EventFailed, d.taskError(ctx, task, err)
		}
		event.At = d.now()
	}()
	result, err := task.Program.Run(ctx, call)
	if err != nil {
		event.Kind, event.Err = EventFailed, d.taskError(ctx, task, err)
		return event
	}
	event.Result = result
	return event
}

// taskError turns an error into what the workflow sees of it. What nobody
// outside may see is logged.
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
			slog.String("executionId", d.env.ExecutionID), slog.String("taskId", task.ID), slog.Any("error", err))
	}
	return &workflow.TaskError{Code: workflow.CodeInternal, Message: "an unexpected error occurred"}
}

// readTasks gives the expressions what the tasks decided meanwhile gave.
func (d *drive) readTasks() {
	waiting := d.unread[:0]
	for _, i := range d.unread {
		task, state := d.run.Plan.Graph.Tasks[i], &d.run.State.Tasks[i]
		if !state.decided(task) {
			waiting = append(waiting, i)
			continue
		}
		value := map[string]any{"output": state.Output, "status": string(state.Status), "error": nil}
		if state.Error != nil {
			value["error"] = state.Error.Value()
		}
		d.env.Tasks[task.ID] = value
	}
	d.unread = waiting
}
