package engine

import (
	"time"

	"tranche/internal/workflow"
)

// ResetSources prepares a completed state for another attempt of the data sources that
// failed in it (contract 6.9). It counts the attempt. It resets those tasks with their
// descendants, interrupted tasks, and every end. Everything else keeps its result, also a
// handled failure of another task. If a source failed in the nested runs of a task, the
// whole task runs again.
//
// The sources run before all other tasks, as if they had taken longest in the first run.
// Otherwise an end that does not wait for them would end the execution at once.
func ResetSources(plan *workflow.Plan, state *State) {
	state.Attempt++
	state.Status = StatusPending
	state.StartedAt, state.Deadline, state.CompletedAt = time.Time{}, time.Time{}, time.Time{}
	first, again := make([]bool, len(state.Tasks)), make([]bool, len(state.Tasks))
	for i := range state.Tasks {
		task, t := plan.Graph.Tasks[i], &state.Tasks[i]
		first[i] = hasFailedSource(task, t)
		again[i] = first[i] || t.End != nil || !t.decided(task) || t.Status == StatusSkipped && t.Skip
	}
	spread(again, func(i int) []int { return plan.Graph.Tasks[i].Targets })
	spread(first, func(i int) []int { return plan.Graph.Tasks[i].Sources }) // the tasks that lead to them
	for i := range state.Tasks {
		if again[i] {
			state.Tasks[i] = state.Tasks[i].anew(state.Attempt)
			state.Tasks[i].Later = !first[i]
		}
	}
}

// hasFailedSource reports whether a task is a data source that failed and was gone on
// after, or had one in its nested runs.
func hasFailedSource(task *workflow.Task, t *TaskState) bool {
	return t.Nested != nil && t.Nested.sourceFailed() ||
		t.Status == StatusFailed && task.Source != "" && task.OnError.Mode == workflow.ErrorContinue
}
