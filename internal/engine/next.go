package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"time"

	"tranche/internal/workflow"
)

// EventKind says what happened.
type EventKind int

// The kinds of events.
const (
	EventStarted   EventKind = iota // the execution begins, or another process goes on with it
	EventAdmitted                   // the task's when is true
	EventPassed                     // the task's when is false
	EventCompleted                  // the task gave Result
	EventFailed                     // the task gave Err
	EventTimer                      // time has passed
	EventCancelled                  // the execution is to stop
)

// Event is something that happened to an execution.
type Event struct {
	Kind   EventKind
	Task   int // its position
	Result workflow.Result
	Err    *workflow.TaskError
	At     time.Time
}

// ActionKind says what is to be done.
type ActionKind int

// The kinds of actions.
const (
	ActionCheck  ActionKind = iota // evaluate the task's when
	ActionRun                      // run the task's program
	ActionWait                     // report a timer at At
	ActionFinish                   // stop what runs; the execution has ended
)

// Action is what is to be done next.
type Action struct {
	Kind ActionKind
	Task int
	At   time.Time
}

// Next applies an event to the state and says what is to be done. It reads no
// clock and has no memory but the state.
//
// A step without effects (a when, a program that reaches nothing outside) is
// asked for alone, lowest position first, and answered before anything else
// happens; only when none is left do effects begin or does the execution end.
// So among ends and failures that compete without effects the earlier in
// tasks wins (decisions 4.5).
func Next(plan *workflow.Plan, state *State, event Event) []Action {
	if state.Ended() {
		return nil
	}
	s := step{graph: plan.Graph, tasks: state.Tasks, state: state, at: event.At}
	s.apply(plan, event)
	return s.decide()
}

// step is one use of Next on one graph and the states of its tasks.
type step struct {
	graph *workflow.Graph
	tasks []TaskState
	state *State // of the execution
	at    time.Time
}

func (s *step) late() bool { return !s.at.Before(s.state.Deadline) }

func (s *step) apply(plan *workflow.Plan, event Event) {
	switch event.Kind {
	case EventStarted:
		s.start(plan)
	case EventAdmitted:
		s.tasks[event.Task].Admitted = true
	case EventPassed:
		s.passOver(event.Task)
	case EventCompleted:
		s.complete(event.Task, event.Result)
	case EventFailed:
		s.fail(event.Task, event.Err)
	case EventTimer:
		s.wake()
	case EventCancelled:
		s.end(StatusCancelled)
	}
}

// start begins an execution, or goes on with one whose process died: what ran
// then runs again, as the same attempt.
func (s *step) start(plan *workflow.Plan) {
	s.state.Status = StatusRunning
	if s.state.StartedAt.IsZero() {
		s.state.StartedAt = s.at
	}
	if s.state.Deadline.IsZero() {
		s.state.Deadline = s.at.Add(plan.Timeout)
	}
	for i := range s.tasks {
		if t := &s.tasks[i]; t.Status == StatusRunning {
			t.Status, t.Ready = StatusPending, true
			t.Attempt--
		}
	}
	s.wake()
	for i := range s.tasks {
		s.settle(i)
	}
}

// wake makes ready what has waited long enough.
func (s *step) wake() {
	for i := range s.tasks {
		if t := &s.tasks[i]; t.Status == StatusWaiting && !t.WakeAt.After(s.at) {
			t.Status, t.Ready, t.WakeAt = StatusPending, true, time.Time{}
		}
	}
}

func (s *step) complete(i int, result workflow.Result) {
	t, task := &s.tasks[i], s.graph.Tasks[i]
	if !result.WaitUntil.IsZero() {
		t.Status, t.WakeAt = StatusWaiting, result.WaitUntil
		t.Attempt-- // it goes on with the same one
		return
	}
	t.Status, t.CompletedAt = StatusCompleted, s.at
	t.Output, t.Error, t.End = result.Output, nil, result.End
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
		// What is not taken when the task is passed over is not here either: a
		// switch without a decision has only its default.
		s.take(i, task.OnSkip)
	case workflow.ErrorGoto:
		s.take(i, []int{task.OnError.Goto})
	}
}

// chance is in [0,1), spread over executions, tasks and attempts, and the same
// whenever it is asked for.
func (s *step) chance(task *workflow.Task, t *TaskState) float64 {
	sum := sha256.Sum256([]byte(s.state.idempotencyKey(task.ID, t) + "#" + strconv.Itoa(t.Attempt)))
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

// settle decides whether a task begins, once all its incoming edges are
// decided: it does if one was taken, else it is skipped (decisions 4.2).
func (s *step) settle(i int) {
	t, task := &s.tasks[i], s.graph.Tasks[i]
	if t.Status != StatusPending || t.Ready {
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

// decide says what is to be done in the state that the event led to.
func (s *step) decide() []Action {
	if s.state.Ended() {
		return []Action{{Kind: ActionFinish}}
	}
	late := s.late()
	ended, busy := false, false
	var wakeAt time.Time
	for i := range s.tasks {
		t, task := &s.tasks[i], s.graph.Tasks[i]
		switch {
		case t.Ready && !late && task.When != nil && !t.Admitted:
			s.begin(t)
			return []Action{{Kind: ActionCheck, Task: i}}
		case t.Ready && !late && !task.Program.Effect():
			return []Action{s.run(i)}
		case t.Ready || t.Status == StatusRunning:
			busy = true
		case t.Status == StatusWaiting:
			busy = true
			if wakeAt.IsZero() || t.WakeAt.Before(wakeAt) {
				wakeAt = t.WakeAt
			}
		case t.ends(task):
			ended = true
		}
	}
	switch {
	case ended || !busy:
		return s.finish()
	case late:
		s.end(StatusTimeout)
		return []Action{{Kind: ActionFinish}}
	}
	return s.effects(wakeAt)
}

// effects begins every effect that is ready, and asks for a timer if any task waits.
func (s *step) effects(wakeAt time.Time) []Action {
	var actions []Action
	for i := range s.tasks {
		if s.tasks[i].Ready {
			actions = append(actions, s.run(i))
		}
	}
	if !wakeAt.IsZero() {
		actions = append(actions, Action{Kind: ActionWait, At: wakeAt})
	}
	return actions
}

func (s *step) run(i int) Action {
	t := &s.tasks[i]
	s.begin(t)
	t.Status, t.Ready = StatusRunning, false
	t.Attempt++
	return Action{Kind: ActionRun, Task: i}
}

func (s *step) begin(t *TaskState) {
	if t.StartedAt.IsZero() {
		t.StartedAt = s.at
	}
}

// finish ends an execution whose graph has come to an end.
func (s *step) finish() []Action {
	status := StatusCompleted
	if last := decisive(s.graph, s.tasks); last >= 0 {
		if t := &s.tasks[last]; t.Status == StatusFailed || t.End.Failed {
			status = StatusFailed
		}
	}
	s.end(status)
	return []Action{{Kind: ActionFinish}}
}

// end gives the execution its final status and stops what runs or waits.
func (s *step) end(status Status) {
	stopped := StatusCancelled
	if status == StatusTimeout {
		stopped = StatusTimeout
	}
	for i := range s.tasks {
		t := &s.tasks[i]
		if t.Status == StatusRunning || t.Status == StatusWaiting {
			t.Status, t.CompletedAt, t.WakeAt = stopped, s.at, time.Time{}
		}
		t.Ready = false
	}
	s.state.Status, s.state.CompletedAt = status, s.at
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
