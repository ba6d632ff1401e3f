package engine

import (
	"fmt"
	"slices"
	"time"

	"tranche/internal/fault"
	"tranche/internal/workflow"
)

// Reset makes an ended state ready for a retry of the execution (decisions
// 5.7): it counts the attempt, keeps what completed or was rightly skipped, and
// resets every other task with its descendants; after an end with failed,
// everything. Of the tasks that are reset, those in skip will be passed over.
// It returns the ids of the tasks that are passed over and of those that may
// run again. An unknown id is fault.Invalid, and the state is as it was.
func Reset(plan *workflow.Plan, state *State, skip []string) (skipped, resumed []string, err error) {
	skips := make([]bool, len(state.Tasks))
	var unknown []fault.Detail
	for i, id := range skip {
		if index, ok := plan.Graph.Index(id); ok {
			skips[index] = true
		} else {
			unknown = append(unknown, fault.Detail{Field: fmt.Sprintf("skipTasks[%d]", i), Message: "names no task of the workflow"})
		}
	}
	if len(unknown) > 0 {
		return nil, nil, fault.New(fault.Invalid, "the tasks to skip are invalid").WithDetails(unknown...)
	}
	state.Attempt++
	state.Status = StatusPending
	state.StartedAt, state.Deadline, state.CompletedAt = time.Time{}, time.Time{}, time.Time{}
	for i, again := range toReset(plan.Graph, state.Tasks) {
		if !again {
			continue
		}
		before := state.Tasks[i]
		after := TaskState{Status: StatusPending, Skip: skips[i], KeyAttempt: before.KeyAttempt}
		if before.Answered {
			after.KeyAttempt = state.Attempt
		}
		state.Tasks[i] = after
		if skips[i] {
			skipped = append(skipped, plan.Graph.Tasks[i].ID)
		} else {
			resumed = append(resumed, plan.Graph.Tasks[i].ID)
		}
	}
	return skipped, resumed, nil
}

// toReset marks what a retry decides anew. An end is always among it, because
// it would end the execution at once.
func toReset(graph *workflow.Graph, tasks []TaskState) []bool {
	again := make([]bool, len(tasks))
	var queue []int
	everything := slices.ContainsFunc(tasks, func(t TaskState) bool { return t.End != nil && t.End.Failed })
	for i := range tasks {
		t := &tasks[i]
		kept := t.Status == StatusCompleted && t.End == nil || t.Status == StatusSkipped && !t.Skip
		if everything || !kept {
			again[i] = true
			queue = append(queue, i)
		}
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, target := range graph.Tasks[i].Targets {
			if !again[target] {
				again[target] = true
				queue = append(queue, target)
			}
		}
	}
	return again
}
