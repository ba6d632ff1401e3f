package engine

import (
	"fmt"
	"slices"
	"time"

	"tranche/internal/workflow"
)

const (
	// runsMax bounds the nested runs of one execution.
	runsMax = 100_000
	// runsShownMax is how many completed runs of a task keep their tasks'
	// states, for people to look at; of the others the result remains.
	runsShownMax = 100
	// noticesMax bounds the notices that nested runs add to an execution.
	noticesMax = 1_000
)

// The codes of failures of nested work, all of the workflow's own doing.
const (
	codeEnded       = "ENDED_AS_FAILED" // an end of the nested graph says failed
	codeLoopLimit   = "LOOP_LIMIT"      // maxIterations, and until does not hold
	codeRunLimit    = "RUN_LIMIT"       // more than runsMax nested runs
	codeUnavailable = "SUB_WORKFLOW_UNAVAILABLE"
	codeSignal      = "SIGNAL_TIMEOUT" // no signal in time
)

// Phase is the step of a task with nested runs.
type Phase string

// The phases.
const (
	PhaseRuns  Phase = ""      // its runs go on
	PhaseItems Phase = "items" // it is not known yet how many runs there are
	PhaseTest  Phase = "test"  // a run has ended: is it the last?
)

// Nested is how far the nested runs of one task are.
type Nested struct {
	Phase Phase `json:"phase,omitempty"`
	Count int   `json:"count,omitempty"` // items of a for-each
	Next  int   `json:"next,omitempty"`  // index of the run that begins next
	Open  []int `json:"open,omitempty"`  // indexes of the runs that go on, ascending
	// Frames are the runs begun, by index; of a loop only the last.
	Frames []*Frame `json:"frames,omitempty"`
	// Last is the result of a loop's last completed iteration.
	Last any `json:"last,omitempty"`
	// Limit is when the task's own time is over.
	Limit time.Time `json:"limit,omitzero"`
	// Tally is that of the runs that Frames does not keep.
	Tally Tally `json:"tally,omitzero"`
}

// Frame is one run of a nested graph: an item of a for-each, an iteration of a
// loop, a sub-workflow.
type Frame struct {
	Index       int                 `json:"index"` // from 0
	Status      Status              `json:"status"`
	StartedAt   time.Time           `json:"startedAt,omitzero"`
	CompletedAt time.Time           `json:"completedAt,omitzero"`
	Tasks       []TaskState         `json:"tasks,omitempty"` // in the order of the nested definition
	Output      any                 `json:"output,omitempty"`
	Error       *workflow.TaskError `json:"error,omitempty"`
	Tally       Tally               `json:"tally,omitzero"`
}

// Tally counts the results of ended nested runs for the outcome of the execution.
type Tally struct {
	TasksCompleted int               `json:"tasksCompleted,omitempty"`
	TasksFailed    int               `json:"tasksFailed,omitempty"`
	SourceFailed   bool              `json:"sourceFailed,omitempty"`
	Notices        []workflow.Notice `json:"notices,omitempty"`
}

// nestedRun names one run of one task's nested graphs.
type nestedRun struct {
	Task  int // position of the task in its graph
	Index int // of the run
}

// place leads to a graph on its way: nil to the execution's own, else through
// the runs around it, outermost first.
type place []nestedRun

// within reports whether a place is in a run.
func (p place) within(run place) bool {
	return len(p) >= len(run) && slices.Equal(p[:len(run)], run)
}

// frame returns the run of that index; nil if it is not kept.
func (n *Nested) frame(index int) *Frame {
	if n == nil {
		return nil
	}
	if index < len(n.Frames) && n.Frames[index].Index == index {
		return n.Frames[index]
	}
	if len(n.Frames) == 1 && n.Frames[0].Index == index {
		return n.Frames[0]
	}
	return nil
}

// open returns the run of that index if it has not ended.
func (n *Nested) open(index int) *Frame {
	frame := n.frame(index)
	if frame == nil || frame.Status != StatusRunning {
		return nil
	}
	return frame
}

// over reports whether the task's own time is over.
func (n *Nested) over(at time.Time) bool { return !n.Limit.IsZero() && !n.Limit.After(at) }

// inside is the step on one run of task i.
func (s *step) inside(i int, frame *Frame) step {
	inner := *s
	inner.graph, inner.tasks = s.plan.NestedGraph(s.graph.Tasks[i].Nest), frame.Tasks
	inner.in = append(slices.Clip(s.in), nestedRun{i, frame.Index})
	if s.graph.Tasks[i].Nest.Graph == nil {
		inner.depth++
	}
	return inner
}

// reach is the step on the graph at a place; false if that run is over.
func (s *step) reach(in place) (step, bool) {
	at := *s
	for _, run := range in {
		frame := at.tasks[run.Task].Nested.open(run.Index)
		if frame == nil {
			return at, false
		}
		at = at.inside(run.Task, frame)
	}
	return at, true
}

// enter begins a task with nested runs, or resumes one from an earlier attempt of the
// execution.
func (s *step) enter(i int) {
	s.run(i)
	t, task := &s.tasks[i], s.graph.Tasks[i]
	graph := s.plan.NestedGraph(task.Nest)
	switch {
	case graph == nil:
		s.fail(i, &workflow.TaskError{Code: codeUnavailable, Message: fmt.Sprintf("there is no workflow %s %s to run", task.Nest.Ref.Alias, task.Nest.Ref.Version)})
		return
	case task.Nest.Graph == nil && s.depth >= workflow.SubDepthMax:
		s.fail(i, &workflow.TaskError{Code: codeUnavailable, Message: fmt.Sprintf("sub-workflows must not be nested deeper than %d levels", workflow.SubDepthMax)})
		return
	}
	fresh := t.Nested == nil
	if fresh {
		t.Nested = &Nested{}
	}
	if task.Timeout > 0 {
		t.Nested.Limit = s.at.Add(task.Timeout)
	}
	switch {
	case !fresh && (len(t.Nested.Open) > 0 || t.Nested.Phase == PhaseTest):
		for _, index := range t.Nested.Open {
			inner := s.inside(i, t.Nested.frame(index))
			inner.settleAll()
		}
	case task.Nest.Kind == workflow.NestEach:
		t.Nested.Phase = PhaseItems
	case fresh:
		s.begins(i)
	}
}

// begins begins the next run of task i.
func (s *step) begins(i int) {
	n := s.tasks[i].Nested
	if s.state.Runs++; s.state.Runs > runsMax {
		s.stopRuns(i, StatusCancelled)
		s.fail(i, &workflow.TaskError{Code: codeRunLimit, Message: fmt.Sprintf("an execution has at most %d nested runs", runsMax)})
		return
	}
	graph := s.plan.NestedGraph(s.graph.Tasks[i].Nest)
	frame := &Frame{Index: n.Next, Status: StatusRunning, StartedAt: s.at, Tasks: pending(graph)}
	for j := range frame.Tasks {
		frame.Tasks[j].KeyAttempt = s.tasks[i].KeyAttempt
	}
	if s.graph.Tasks[i].Nest.Kind == workflow.NestLoop {
		for _, before := range n.Frames {
			n.Tally.add(&before.Tally)
		}
		n.Frames = n.Frames[:0]
	}
	n.Frames = append(n.Frames, frame)
	n.Open = append(n.Open, n.Next)
	n.Next++
	inner := s.inside(i, frame)
	inner.settleAll()
}

// fill begins as many runs of a for-each as its concurrency lets, first those
// that a retry does again.
func (s *step) fill(i int) {
	n, nest := s.tasks[i].Nested, s.graph.Tasks[i].Nest
	for s.tasks[i].Status == StatusRunning && len(n.Open) < nest.Concurrency {
		again := slices.IndexFunc(n.Frames, func(f *Frame) bool { return f.Status == StatusPending })
		switch {
		case again >= 0:
			s.resumes(i, n.Frames[again])
		case n.Next < n.Count:
			s.begins(i)
		default:
			return
		}
	}
}

// resumes continues a run of an earlier attempt of the execution.
func (s *step) resumes(i int, frame *Frame) {
	n := s.tasks[i].Nested
	frame.Status, n.Open = StatusRunning, append(n.Open, frame.Index)
	slices.Sort(n.Open)
	inner := s.inside(i, frame)
	inner.settleAll()
}

// advance moves on a task with open nested runs. It returns the next step without effects
// in those runs, if there is one, and whether the task changed, so that its graph must be
// examined again.
func (s *step) advance(i int) (next action, found, moved bool) {
	n := s.tasks[i].Nested
	switch n.Phase {
	case PhaseItems:
		return action{Kind: actionItems, In: s.in, Task: i}, true, false
	case PhaseTest:
		return action{Kind: actionTest, In: s.in, Task: i}, true, false
	case PhaseRuns:
	}
	for _, index := range n.Open {
		frame := n.open(index)
		inner := s.inside(i, frame)
		next, found, over := inner.survey(false)
		if found {
			return next, true, false
		}
		if over {
			output, err := inner.result()
			s.close(i, frame, output, err)
			return action{}, false, true
		}
	}
	if len(n.Open) == 0 {
		s.collect(i)
		return action{}, false, true
	}
	return action{}, false, false
}

// result returns the output or the error of a nested graph that has ended.
func (s *step) result() (any, *workflow.TaskError) {
	last := decisive(s.graph, s.tasks)
	if last < 0 {
		return results(s.graph, s.tasks), nil
	}
	t := &s.tasks[last]
	if t.End == nil {
		err := *t.Error
		if t.Nested == nil {
			err.Message = s.path(last) + ": " + err.Message
		}
		return nil, &err
	}
	if t.End.Failed {
		message := t.End.ErrorMessage
		if message == "" {
			message = "the graph ended as failed"
		}
		return nil, &workflow.TaskError{Code: codeEnded, Message: s.path(last) + ": " + message, StatusCode: t.End.StatusCode}
	}
	if t.Output == nil {
		return map[string]any{}, nil
	}
	return t.Output, nil
}

// close ends one run of task i, and the task itself if the run decides it.
func (s *step) close(i int, frame *Frame, output any, err *workflow.TaskError) {
	n, nest := s.tasks[i].Nested, s.graph.Tasks[i].Nest
	inner := s.inside(i, frame)
	inner.stop(StatusCancelled)
	frame.Tally = inner.tally()
	n.Open = slices.DeleteFunc(n.Open, func(index int) bool { return index == frame.Index })
	frame.Status, frame.CompletedAt, frame.Output, frame.Error = StatusCompleted, s.at, output, err
	if err != nil {
		frame.Status = StatusFailed
	} else {
		frame.forget()
	}
	switch {
	case err != nil && nest.Kind == workflow.NestEach && nest.Continue:
		s.fill(i)
	case err != nil:
		s.stopRuns(i, StatusCancelled)
		s.fail(i, err)
	case nest.Kind == workflow.NestEach:
		s.fill(i)
	case nest.Kind == workflow.NestLoop:
		n.Phase, n.Last, frame.Output = PhaseTest, output, nil
	default:
		frame.Output = nil
		s.complete(i, workflow.Result{Output: output})
	}
}

// refuse ends a run that could not begin.
func (s *step) refuse(event *event) {
	// The step is that on the run; closing it is up to the task around.
	around := step{plan: s.plan, graph: s.plan.Graph, tasks: s.state.Tasks, state: s.state, at: s.at, buffer: s.buffer}
	last := len(event.In) - 1
	if at, goesOn := around.reach(event.In[:last]); goesOn {
		run := event.In[last]
		at.close(run.Task, at.tasks[run.Task].Nested.frame(run.Index), nil, event.Err)
	}
}

// forget drops the parts of a completed run that are not read again.
func (f *Frame) forget() {
	if f.Index >= runsShownMax {
		f.Tasks = nil
	}
	for i := range f.Tasks {
		f.Tasks[i].Output, f.Tasks[i].Taken = nil, nil
	}
}

// collect completes a for-each whose runs have ended. The result is the list of their
// results in the order of the items.
func (s *step) collect(i int) {
	n := s.tasks[i].Nested
	outputs := make([]any, len(n.Frames))
	for j, frame := range n.Frames {
		outputs[j] = frame.Output
		if frame.Error != nil {
			outputs[j] = map[string]any{"error": frame.Error.Value()}
		}
		frame.Output = nil
	}
	s.complete(i, workflow.Result{Output: outputs})
}

// test takes the answer to until: a loop ends, pauses, or repeats its graph.
func (s *step) test(i int, met bool) {
	n, nest := s.tasks[i].Nested, s.graph.Tasks[i].Nest
	n.Phase = PhaseRuns
	switch {
	case met:
		output := n.Last
		n.Last = nil
		s.complete(i, workflow.Result{Output: output})
	case n.Next >= nest.IterationsMax:
		s.fail(i, &workflow.TaskError{Code: codeLoopLimit, Message: fmt.Sprintf("until is still false after %d iterations", n.Next)})
	case nest.Delay > 0:
		s.tasks[i].Status, s.tasks[i].WakeAt = StatusWaiting, s.at.Add(nest.Delay)
	default:
		s.begins(i)
	}
}

// await begins the wait for a signal.
func (s *step) await(i int) {
	s.run(i)
	t := &s.tasks[i]
	t.Status = StatusWaiting
	if limit := s.graph.Tasks[i].Wait.Timeout; limit > 0 {
		t.WakeAt = s.at.Add(limit)
	}
}

// stopRuns ends the runs of task i that go on.
func (s *step) stopRuns(i int, status Status) {
	n := s.tasks[i].Nested
	if n == nil {
		return
	}
	for _, index := range n.Open {
		frame := n.frame(index)
		inner := s.inside(i, frame)
		inner.stop(status)
		frame.Tally = inner.tally()
		frame.Status, frame.CompletedAt = status, s.at
	}
	n.Open, n.Phase = nil, PhaseRuns
}

// stop ends all running and waiting tasks of a nested graph.
func (s *step) stop(status Status) {
	running := false
	for i := range s.tasks {
		t := &s.tasks[i]
		running = running || t.Status == StatusRunning && t.Nested == nil
		s.stopTask(i, status)
	}
	if running {
		s.do(action{Kind: actionStop, In: s.in})
	}
}

func (s *step) stopTask(i int, status Status) {
	t := &s.tasks[i]
	if t.Status == StatusRunning || t.Status == StatusWaiting {
		s.stopRuns(i, status)
		t.Status, t.CompletedAt, t.WakeAt = status, s.at, time.Time{}
	}
	t.Ready, t.Later = false, false
}

// tally counts the tasks of a run that is over.
func (s *step) tally() Tally {
	var o Outcome
	for i, task := range s.graph.Tasks {
		if o.count(task, &s.tasks[i]) {
			o.Notices[len(o.Notices)-1].TaskID = s.path(i)
		}
	}
	return Tally{o.TasksCompleted, o.TasksFailed, o.SourceFailed, o.Notices[:min(len(o.Notices), noticesMax)]}
}

func (y *Tally) add(other *Tally) {
	y.TasksCompleted += other.TasksCompleted
	y.TasksFailed += other.TasksFailed
	y.SourceFailed = y.SourceFailed || other.SourceFailed
	room := max(noticesMax-len(y.Notices), 0)
	y.Notices = append(y.Notices, other.Notices[:min(len(other.Notices), room)]...)
}

// total is the tally of all the runs of a task.
func (n *Nested) total() Tally {
	sum := n.Tally
	sum.Notices = slices.Clip(sum.Notices)
	for _, frame := range n.Frames {
		sum.add(&frame.Tally)
	}
	return sum
}

// sourceFailed reports whether a data source failed in any of the runs.
func (n *Nested) sourceFailed() bool {
	return n.Tally.SourceFailed || slices.ContainsFunc(n.Frames, func(f *Frame) bool { return f.Tally.SourceFailed })
}

// path names a task's run within the execution (contract 4.4): score,
// each[3].score, sub.score.
func (s *step) path(i int) string { return pathOf(s.plan, s.in, i) }

func pathOf(plan *workflow.Plan, in place, i int) string {
	graph, prefix := plan.Graph, ""
	for _, run := range in {
		task := graph.Tasks[run.Task]
		prefix += runName(task, run.Index)
		graph = plan.NestedGraph(task.Nest)
	}
	return prefix + graph.Tasks[i].ID
}

// runName is the prefix of all paths within one run of a task.
func runName(task *workflow.Task, index int) string {
	if task.Nest.Kind == workflow.NestOnce {
		return task.ID + "."
	}
	return fmt.Sprintf("%s[%d].", task.ID, index)
}
