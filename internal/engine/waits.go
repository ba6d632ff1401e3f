package engine

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"tranche/internal/workflow"
)

// Waiting is a wait for a signal that an execution has reached or may reach in
// a graph that is on its way.
type Waiting struct {
	in       place
	position int
	Path     string // each[3].approve
	TaskID   string
	Status   Status
	WakeAt   time.Time // when its time is over; zero if only the workflow's is
	Wait     *workflow.Wait
}

// Waits returns the waits for signals in the graphs of an execution that are on
// their way, the execution's own first.
func Waits(plan *workflow.Plan, state *State) []Waiting {
	var found []Waiting
	s := step{plan: plan, graph: plan.Graph, tasks: state.Tasks, state: state}
	s.waits("", &found)
	return found
}

func (s *step) waits(prefix string, found *[]Waiting) {
	for i, task := range s.graph.Tasks {
		t := &s.tasks[i]
		if task.Wait != nil {
			*found = append(*found, Waiting{s.in, i, prefix + task.ID, task.ID, t.Status, t.WakeAt, task.Wait})
		}
		if t.Nested == nil {
			continue
		}
		for _, index := range t.Nested.Open {
			inner := s.inside(i, t.Nested.frame(index))
			inner.waits(prefix+runName(task, index), found)
		}
	}
}

// stepPattern is one step of a path: a task's id and, of nested runs that have
// several, the run's index.
var stepPattern = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_-]*)(?:\[(0|[1-9][0-9]{0,5})\])?$`)

// FutureWait returns the wait that a path leads to once the runs on it have
// begun; nil if there can be none, or if a run on it is over.
func FutureWait(plan *workflow.Plan, state *State, path string) *workflow.Wait {
	graph, tasks := plan.Graph, state.Tasks
	steps := strings.Split(path, ".")
	for n, text := range steps {
		parts := stepPattern.FindStringSubmatch(text)
		if parts == nil {
			return nil
		}
		i, known := graph.Index(parts[1])
		if !known {
			return nil
		}
		task := graph.Tasks[i]
		if n == len(steps)-1 {
			if parts[2] != "" || tasks != nil && tasks[i].Status != StatusPending && tasks[i].Status != StatusWaiting {
				return nil
			}
			return task.Wait
		}
		if task.Nest == nil || (task.Nest.Kind == workflow.NestOnce) != (parts[2] == "") {
			return nil
		}
		index, _ := strconv.Atoi(parts[2])
		if task.Nest.Kind == workflow.NestLoop && index >= task.Nest.IterationsMax {
			return nil
		}
		var over bool
		if tasks, over = framesOf(tasks, i, index); over {
			return nil
		}
		if graph = plan.NestedGraph(task.Nest); graph == nil {
			return nil
		}
	}
	return nil
}

// framesOf returns the tasks of a run, nil if it has not begun, and whether it
// is over or will never be.
func framesOf(tasks []TaskState, i, index int) (run []TaskState, over bool) {
	if tasks == nil {
		return nil, false
	}
	switch t := &tasks[i]; t.Status {
	case StatusPending, StatusRunning, StatusWaiting:
		if t.Nested == nil || index >= t.Nested.Next {
			counted := t.Nested != nil && t.Nested.Phase != PhaseItems && t.Nested.Count > 0
			return nil, counted && index >= t.Nested.Count
		}
		frame := t.Nested.frame(index)
		if frame == nil || frame.Status != StatusRunning && frame.Status != StatusPending {
			return nil, true
		}
		return frame.Tasks, false
	default:
		return nil, true
	}
}
