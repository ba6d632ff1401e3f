package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"time"

	"tranche/internal/expression"
	"tranche/internal/workflow"
)

// eventKind is the kind of an event.
type eventKind int

// The kinds of events.
const (
	eventStarted   eventKind = iota // the execution begins, or another process resumes it
	eventAdmitted                   // the task's when is true
	eventPassed                     // the task's when is false
	eventCompleted                  // the task returned Result, or its signal arrived
	eventFailed                     // the task returned Err
	eventItems                      // the task's items are Count
	eventTested                     // the task's until is Met
	eventRefused                    // the run at In cannot begin, for Err
	eventTimer                      // time has passed
	eventCancelled                  // the execution is to stop
)

// event is something that happened to an execution.
type event struct {
	Kind   eventKind
	In     place // where the task's graph is
	Task   int   // its position
	Result workflow.Result
	Err    *workflow.TaskError
	Count  int
	Met    bool
	At     time.Time
	// Signals are the payloads, by path, that have arrived for waits whose time is over.
	// They are set when the execution begins and when a timer fires.
	Signals map[string]any
}

// actionKind is the kind of an action.
type actionKind int

// The kinds of actions.
const (
	actionCheck actionKind = iota // evaluate the task's when
	actionRun                     // run the task's program
	actionItems                   // evaluate the task's items
	actionTest                    // evaluate the task's until
	actionStop                    // stop the tasks of the run at In
	actionWait                    // report a timer at At, and a signal that comes
)

// action is one thing to do next.
type action struct {
	Kind actionKind
	In   place // where the task's graph is
	Task int
	// At is when a wait is over; zero if only a signal ends it. Signal says that
	// a task waits for one.
	At     time.Time
	Signal bool
}

// next applies an event to the state and returns the actions to take, in buffer. It reads
// no clock and keeps nothing outside the state.
//
// A step without effects is a when, or a program that reaches nothing outside. next asks
// for one such step at a time, lowest position first, and takes its result before anything
// else happens. Effects begin, and the execution ends, only if no such step is left. So if
// an end and a failure without effects compete, the earlier one in tasks wins (contract
// 4.5). Only stops precede such a step. Nested graphs follow the same rules: the next step
// of a task's runs is that of the first run that has one.
func next(plan *workflow.Plan, state *State, event *event, buffer *actionBuffer) []action {
	if state.Ended() {
		return nil
	}
	buffer.actions = buffer.room[:0]
	s := step{plan: plan, graph: plan.Graph, tasks: state.Tasks, state: state, at: event.At, buffer: buffer}
	s.apply(event)
	s.decide()
	return buffer.actions
}

// actionBuffer holds the actions of one use of next; the following use of the
// same buffer takes their place.
type actionBuffer struct {
	actions []action
	room    [1]action // enough for a graph without effects
}

// step is one use of next on one graph and the states of its tasks.
type step struct {
	plan   *workflow.Plan
	graph  *workflow.Graph
	tasks  []TaskState
	state  *State // of the execution
	at     time.Time
	in     place
	depth  int // of workflows within each other
	buffer *actionBuffer
}

func (s *step) late() bool { return !s.at.Before(s.state.Deadline) }

func (s *step) apply(event *event) {
	switch event.Kind {
	case eventStarted:
		s.start(event.Signals)
	case eventTimer:
		s.wake("", event.Signals)
	case eventCancelled:
		s.end(StatusCancelled)
	case eventAdmitted, eventPassed, eventCompleted, eventFailed, eventItems, eventTested, eventRefused:
		if len(event.In) == 0 {
			s.report(event)
		} else if at, goesOn := s.reach(event.In); goesOn {
			at.report(event)
		} // else it comes from a run that was stopped
	}
}

// report applies an event to the task that it is about.
func (s *step) report(event *event) {
	switch event.Kind { //nolint:exhaustive // the others are about the execution
	case eventAdmitted:
		s.tasks[event.Task].Admitted = true
	case eventPassed:
		s.passOver(event.Task)
	case eventCompleted:
		s.complete(event.Task, event.Result)
	case eventFailed:
		s.fail(event.Task, event.Err)
	case eventItems:
		s.tasks[event.Task].Nested.Phase, s.tasks[event.Task].Nested.Count = PhaseRuns, event.Count
		s.fill(event.Task)
	case eventTested:
		s.test(event.Task, event.Met)
	case eventRefused:
		s.refuse(event)
	}
}

// start begins an execution, or resumes one whose process died.
func (s *step) start(signals map[string]any) {
	s.state.Status = StatusRunning
	if s.state.StartedAt.IsZero() {
		s.state.StartedAt = s.at
	}
	if s.state.Deadline.IsZero() {
		s.state.Deadline = s.at.Add(s.plan.Timeout)
	}
	s.restart()
	s.wake("", signals)
	s.settleAll()
}

// restart runs the tasks again that ran when a process died, as the same attempt.
func (s *step) restart() {
	for i := range s.tasks {
		t := &s.tasks[i]
		switch {
		case t.Status != StatusRunning:
		case t.Nested != nil:
			for _, index := range t.Nested.Open {
				inner := s.inside(i, t.Nested.frame(index))
				inner.restart()
			}
		default:
			t.Status, t.Ready = StatusPending, true
			t.Attempt--
		}
	}
}

// wake resumes tasks whose wait is over and ends tasks whose time is over. If the signal
// of a wait has arrived, the wait completes even if its time is over. prefix begins the
// paths of the graph.
func (s *step) wake(prefix string, signals map[string]any) {
	for i := range s.tasks {
		t := &s.tasks[i]
		switch {
		case t.Nested != nil && (t.Status == StatusRunning || t.Status == StatusWaiting) && t.Nested.over(s.at):
			s.stopRuns(i, StatusTimeout)
			t.WakeAt = time.Time{}
			s.fail(i, &workflow.TaskError{Code: workflow.CodeTaskTimeout, Message: errTaskTimeout.Error()})
		case t.Status == StatusRunning && t.Nested != nil:
			for _, index := range t.Nested.Open {
				inner := s.inside(i, t.Nested.frame(index))
				inner.wake(prefix+runName(s.graph.Tasks[i], index), signals)
			}
		case t.Status != StatusWaiting || t.WakeAt.After(s.at) || t.WakeAt.IsZero():
		case s.graph.Tasks[i].Wait != nil:
			t.WakeAt = time.Time{}
			if payload, came := signals[prefix+s.graph.Tasks[i].ID]; came {
				s.complete(i, workflow.Result{Output: payload})
			} else {
				s.fail(i, &workflow.TaskError{Code: codeSignal, Message: "no signal arrived before the time limit"})
			}
		case s.graph.Tasks[i].Nest != nil:
			t.Status, t.WakeAt = StatusRunning, time.Time{}
			s.begins(i)
		default:
			t.Status, t.Ready, t.WakeAt = StatusPending, true, time.Time{}
		}
	}
}

func (s *step) complete(i int, result workflow.Result) {
	t, task := &s.tasks[i], s.graph.Tasks[i]
	if !result.WaitUntil.IsZero() {
		t.Status, t.WakeAt = StatusWaiting, result.WaitUntil
		t.Attempt-- // the attempt stays the same
		return
	}
	t.Status, t.CompletedAt = StatusCompleted, s.at
	t.Output, t.Error, t.End = result.Output, nil, result.End
	t.WakeAt = time.Time{}
	t.Answered = t.Answered || task.Program.Effect()
	switch {
	case result.End != nil:
	case result.Targets == nil:
		s.take(i, task.OnSuccess)
	default:
		taken := make([]int, 0, len(result.Targets))
		for _, id := range result.Targets {
			if target, ok := s.graph.Index(id); ok {
				taken = append(taken, target)
			}
		}
		s.take(i, taken)
	}
}

func (s *step) fail(i int, err *workflow.TaskError) {
	if s.late() {
		return // it failed because the time is over
	}
	t, task := &s.tasks[i], s.graph.Tasks[i]
	t.Error, t.Ready = err, false
	t.Answered = t.Answered || err.StatusCode != 0
	if task.Program.Effect() && task.Retry.Retries(err, t.Attempt) {
		wakeAt := s.at.Add(task.Retry.Delay(t.Attempt, s.chance(task, t), err.RetryAfter))
		// An attempt that cannot begin in time is none.
		if wakeAt.Before(s.state.Deadline) {
			t.Status, t.WakeAt = StatusWaiting, wakeAt
			return
		}
	}
	t.Status, t.CompletedAt = StatusFailed, s.at
	switch task.OnError.Mode {
	case workflow.ErrorFail:
	case workflow.ErrorContinue:
		// A value that is not read if the task is skipped is absent here too: a
		// switch without a decision has only its default.
		s.take(i, task.OnSkip)
	case workflow.ErrorGoto:
		s.take(i, []int{task.OnError.Goto})
	}
}

// chance is in [0,1), spread over executions, tasks and attempts, and the same
// whenever it is asked for.
func (s *step) chance(task *workflow.Task, t *TaskState) float64 {
	call := workflow.Call{Env: &expression.Env{ExecutionID: s.state.ExecutionID, Path: s.path(task.Index)}, KeyAttempt: t.KeyAttempt}
	sum := sha256.Sum256([]byte(call.IdempotencyKey() + "#" + strconv.Itoa(t.Attempt)))
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (1 << 53)
}

// take records which edges of a decided task are taken, and settles the tasks
// that follow.
func (s *step) take(i int, taken []int) {
	s.tasks[i].Taken = taken
	for _, target := range s.graph.Tasks[i].Targets {
		s.settle(target)
	}
}

func (s *step) settleAll() {
	for i := range s.tasks {
		s.settle(i)
	}
}

// settle decides whether a task begins, once all its incoming edges are
// decided: it does if one was taken, else it is skipped (contract 4.2).
func (s *step) settle(i int) {
	t, task := &s.tasks[i], s.graph.Tasks[i]
	if t.Status != StatusPending || t.Ready || t.Later {
		return
	}
	begins := task.Entry
	for _, source := range task.Sources {
		before := &s.tasks[source]
		if !before.decided(s.graph.Tasks[source]) {
			return
		}
		begins = begins || before.takes(i)
	}
	switch {
	case !begins:
		t.Status, t.CompletedAt = StatusSkipped, s.at
		s.take(i, nil)
	case t.Skip:
		s.passOver(i)
	default:
		t.Ready = true
	}
}

func (s *step) passOver(i int) {
	t := &s.tasks[i]
	t.Status, t.Ready, t.CompletedAt = StatusSkipped, false, s.at
	s.take(i, s.graph.Tasks[i].OnSkip)
}

func (s *step) do(action action) { s.buffer.actions = append(s.buffer.actions, action) }

// decide adds the actions that follow from the new state.
func (s *step) decide() {
	if s.state.Ended() {
		return
	}
	late := s.late()
	next, found, over := s.survey(late)
	switch {
	case found:
		s.do(next)
	case over:
		s.finish()
	case late:
		s.end(StatusTimeout)
	default:
		wait := action{Kind: actionWait}
		s.effects(&wait)
		if !wait.At.IsZero() || wait.Signal {
			s.do(wait)
		}
	}
}

// survey looks at a graph and the runs in it. It returns the step without
// effects that is next, if there is one, else whether the graph is over.
func (s *step) survey(late bool) (next action, found, over bool) {
	ended, busy, later := false, false, false
	for i := 0; i < len(s.tasks); i++ {
		t, task := &s.tasks[i], s.graph.Tasks[i]
		switch {
		case t.Ready && !late && task.When != nil && !t.Admitted:
			s.begin(t)
			return action{Kind: actionCheck, In: s.in, Task: i}, true, false
		case t.Ready && !late && task.Nest != nil:
			s.enter(i)
			i, ended, busy, later = -1, false, false, false // an earlier task may have changed
		case t.Ready && !late && task.Wait != nil:
			s.await(i)
			busy = true
		case t.Ready && !late && !task.Program.Effect():
			return s.run(i), true, false
		case t.Status == StatusRunning && t.Nested != nil && !late:
			next, found, moved := s.advance(i)
			if found {
				return next, true, false
			}
			busy = true
			if moved {
				i, ended, busy, later = -1, false, false, false
			}
		case t.Ready || t.Status == StatusRunning || t.Status == StatusWaiting:
			busy = true
		case t.ends(task):
			ended = true
		case t.Later:
			later = true
		}
	}
	if later && !ended && !busy {
		s.release()
		return s.survey(late)
	}
	return action{}, false, ended || !busy
}

// release makes the tasks ready that were postponed until the sources had run.
func (s *step) release() {
	for i := range s.tasks {
		s.tasks[i].Later = false
	}
	s.settleAll()
}

// effects begins every effect that is ready, and records the earliest wait.
func (s *step) effects(wait *action) {
	for i := range s.tasks {
		t := &s.tasks[i]
		switch {
		case t.Ready:
			s.do(s.run(i))
		case t.Status == StatusRunning && t.Nested != nil:
			wait.until(t.Nested.Limit)
			for _, index := range t.Nested.Open {
				inner := s.inside(i, t.Nested.frame(index))
				inner.effects(wait)
			}
		case t.Status == StatusWaiting:
			wait.until(t.WakeAt)
			if t.Nested != nil {
				wait.until(t.Nested.Limit)
			}
			wait.Signal = wait.Signal || s.graph.Tasks[i].Wait != nil
		}
	}
}

// until lets a wait end at a time, if that is not zero, at the latest.
func (a *action) until(at time.Time) {
	if !at.IsZero() && (a.At.IsZero() || at.Before(a.At)) {
		a.At = at
	}
}

func (s *step) run(i int) action {
	t := &s.tasks[i]
	s.begin(t)
	t.Status, t.Ready = StatusRunning, false
	t.Attempt++
	return action{Kind: actionRun, In: s.in, Task: i}
}

func (s *step) begin(t *TaskState) {
	if t.StartedAt.IsZero() {
		t.StartedAt = s.at
	}
}

// finish ends an execution whose graph has ended.
func (s *step) finish() {
	status := StatusCompleted
	if last := decisive(s.graph, s.tasks); last >= 0 {
		if t := &s.tasks[last]; t.Status == StatusFailed || t.End.Failed {
			status = StatusFailed
		}
	}
	s.end(status)
}

// end sets the final status of the execution and ends all running and waiting tasks. No
// actions remain: the drive stops the effects when it ends.
func (s *step) end(status Status) {
	stopped := StatusCancelled
	if status == StatusTimeout {
		stopped = StatusTimeout
	}
	for i := range s.tasks {
		s.stopTask(i, stopped)
	}
	s.state.Status, s.state.CompletedAt = status, s.at
	s.buffer.actions = nil
}

// decisive is the position of the task that ended a graph, the earliest if
// several compete; -1 if the graph ran out of tasks.
func decisive(graph *workflow.Graph, tasks []TaskState) int {
	for i := range tasks {
		if tasks[i].ends(graph.Tasks[i]) {
			return i
		}
	}
	return -1
}
