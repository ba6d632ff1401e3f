package engine

import (
	"time"

	"tranche/internal/workflow"
)

// ResetSources makes a completed state ready for another attempt of the data
// sources that failed in it (decisions 6.9): it counts the attempt and resets
// those tasks with their descendants, what was broken off, and every end, which
// would end the execution at once. Everything else keeps its result, a failure
// of another task that was handled too. A task in whose nested runs a source
// failed runs again as a whole.
func ResetSources(plan *workflow.Plan, state *State) {
	state.Attempt++
	state.Status = StatusPending
	state.StartedAt, state.Deadline, state.CompletedAt = time.Time{}, time.Time{}, time.Time{}
	again := make([]bool, len(state.Tasks))
	for i := range state.Tasks {
		again[i] = !keepsResult(plan.Graph.Tasks[i], &state.Tasks[i])
	}
	descend(plan.Graph, again)
	for i := range state.Tasks {
		if again[i] {
			state.Tasks[i] = state.Tasks[i].anew(state.Attempt)
		}
	}
}

// keepsResult reports whether a task by itself gives no reason to run again.
func keepsResult(task *workflow.Task, t *TaskState) bool {
	if t.Nested != nil && t.Nested.sourceFailed() {
		return false
	}
	switch t.Status {
	case StatusCompleted:
		return t.End == nil
	case StatusFailed:
		return task.Source == "" || task.OnError.Mode != workflow.ErrorContinue
	case StatusSkipped:
		return !t.Skip
	default:
		return false
	}
}
