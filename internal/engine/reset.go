package engine

import (
	"fmt"
	"slices"
	"time"

	"tranche/internal/fault"
	"tranche/internal/workflow"
)

// Reset prepares an ended state for a retry of the execution (contract 5.7). It counts
// the attempt, keeps tasks that completed or were skipped by their condition, and resets
// all others with their descendants. After an end with status failed it resets every task.
// Reset tasks in skip will be skipped. Reset returns the ids of the skipped tasks and of
// those that may run again. An unknown id is fault.Invalid and leaves the state unchanged.
func Reset(plan *workflow.Plan, state *State, skip []string) (skipped, resumed []string, err error) {
	skips := make([]bool, len(state.Tasks))
	var unknown []fault.Detail
	for i, id := range skip {
		if index, ok := plan.Graph.Index(id); ok {
			skips[index] = true
			continue
		}
		message := "must be the id of a task of the workflow"
		if isNested(plan.Graph, id) {
			message = "names a task in a nested graph, which cannot be skipped by itself"
		}
		unknown = append(unknown, fault.Detail{Field: fmt.Sprintf("skipTasks[%d]", i), Message: message})
	}
	if len(unknown) > 0 {
		return nil, nil, fault.New(fault.Invalid, "the tasks to skip are invalid").WithDetails(unknown...)
	}
	state.Attempt++
	state.Status = StatusPending
	state.StartedAt, state.Deadline, state.CompletedAt = time.Time{}, time.Time{}, time.Time{}
	r := resetter{plan, state.Attempt}
	for _, i := range r.reset(plan.Graph, state.Tasks) {
		state.Tasks[i].Skip = skips[i]
		if skips[i] {
			skipped = append(skipped, plan.Graph.Tasks[i].ID)
		} else {
			resumed = append(resumed, plan.Graph.Tasks[i].ID)
		}
	}
	return skipped, resumed, nil
}

// isNested reports whether a task of a graph nested in this one has the id.
func isNested(graph *workflow.Graph, id string) bool {
	for _, task := range graph.Tasks {
		for _, child := range task.Children {
			if _, found := child.Index(id); found || isNested(child, id) {
				return true
			}
		}
	}
	return false
}

// resetter resets the graphs of one execution for an attempt.
type resetter struct {
	plan    *workflow.Plan
	attempt int
}

// reset resets the tasks of one graph and returns which.
func (r resetter) reset(graph *workflow.Graph, tasks []TaskState) []int {
	var reset []int
	again := toReset(graph, tasks)
	for i := range tasks {
		if !again[i] {
			continue
		}
		before := tasks[i]
		// What a task works on is the same only if nothing before it is reset.
		same := !slices.ContainsFunc(graph.Tasks[i].Sources, func(source int) bool { return again[source] })
		if same && before.Status != StatusCompleted && r.resume(graph.Tasks[i], &before) {
			tasks[i] = TaskState{Status: StatusPending, KeyAttempt: before.KeyAttempt, Nested: before.Nested}
		} else {
			tasks[i] = before.anew(r.attempt)
		}
		reset = append(reset, i)
	}
	return reset
}

// anew returns the state of a task that an attempt decides again from its beginning. If
// its call was answered, KeyAttempt becomes the number of the attempt. The task has never
// had that number, even if a postponed attempt is counted again.
func (t *TaskState) anew(attempt int) TaskState {
	after := TaskState{Status: StatusPending, KeyAttempt: t.KeyAttempt}
	if t.Answered || t.Nested != nil {
		after.KeyAttempt = max(attempt, t.KeyAttempt+1)
	}
	return after
}

// resume keeps the completed runs of a task and resets the others, so that the task
// continues from where it ended. It reports whether that is possible.
func (r resetter) resume(task *workflow.Task, t *TaskState) bool {
	n := t.Nested
	if n == nil || r.plan.NestedGraph(task.Nest) == nil {
		return false
	}
	n.Open, n.Phase, n.Limit = nil, PhaseRuns, time.Time{}
	for _, frame := range n.Frames {
		if frame.Status == StatusCompleted {
			continue
		}
		r.reset(r.plan.NestedGraph(task.Nest), frame.Tasks)
		frame.Status, frame.CompletedAt, frame.Error, frame.Output, frame.Tally = StatusPending, time.Time{}, nil, nil, Tally{}
		if len(n.Open) < max(task.Nest.Concurrency, 1) {
			frame.Status, n.Open = StatusRunning, append(n.Open, frame.Index)
		}
	}
	if task.Nest.Kind == workflow.NestLoop && len(n.Open) == 0 {
		n.Phase = PhaseTest
		return t.Status != StatusFailed && n.Next > 0 // a loop that failed by itself begins anew
	}
	return len(n.Frames) > 0
}

// toReset marks the tasks that a retry decides again. It always marks an end task, which
// would end the execution at once.
func toReset(graph *workflow.Graph, tasks []TaskState) []bool {
	again := make([]bool, len(tasks))
	everything := slices.ContainsFunc(tasks, func(t TaskState) bool { return t.End != nil && t.End.Failed })
	for i := range tasks {
		t := &tasks[i]
		kept := t.Status == StatusCompleted && t.End == nil || t.Status == StatusSkipped && !t.Skip
		again[i] = everything || !kept
	}
	spread(again, func(i int) []int { return graph.Tasks[i].Targets })
	return again
}

// spread marks all tasks that next reaches from the marked ones.
func spread(marks []bool, next func(i int) []int) {
	var queue []int
	for i := range marks {
		if marks[i] {
			queue = append(queue, i)
		}
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, j := range next(i) {
			if !marks[j] {
				marks[j] = true
				queue = append(queue, j)
			}
		}
	}
}
