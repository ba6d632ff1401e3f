package engine

import (
	"time"

	"tranche/internal/workflow"
)

// ResetSources makes a completed state ready for another attempt of the data
// sources that failed in it (decisions 6.9): it counts the attempt and resets
// those tasks with their descendants; and, for later, what was broken off and every
// other end, which would end the execution before the sources are asked. Everything
// else keeps its result, a failure of another task that was handled too. A task in
// whose nested runs a source failed runs again as a whole.
func ResetSources(plan *workflow.Plan, state *State) {
	state.Attempt++
	state.Status = StatusPending
	state.StartedAt, state.Deadline, state.CompletedAt = time.Time{}, time.Time{}, time.Time{}
	again, later := make([]bool, len(state.Tasks)), make([]bool, len(state.Tasks))
	for i := range state.Tasks {
		task, t := plan.Graph.Tasks[i], &state.Tasks[i]
		again[i] = hasFailedSource(task, t)
		later[i] = t.End != nil || !t.decided(task) || t.Status == StatusSkipped && t.Skip
	}
	descend(plan.Graph, again)
	descend(plan.Graph, later)
	for i := range state.Tasks {
		if again[i] || later[i] {
			state.Tasks[i] = state.Tasks[i].anew(state.Attempt)
			state.Tasks[i].Later = !again[i]
		}
	}
}

// hasFailedSource reports whether a task is a data source that failed and was gone on
// after, or had one in its nested runs.
func hasFailedSource(task *workflow.Task, t *TaskState) bool {
	return t.Nested != nil && t.Nested.sourceFailed() ||
		t.Status == StatusFailed && task.Source != "" && task.OnError.Mode == workflow.ErrorContinue
}
