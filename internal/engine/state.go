// Package engine decides which task of an execution runs next, and what the result of a
// task means. The decision is the pure function next of a plan, a state and an event.
// Runner carries it out with the programs of the plan. The package must know neither
// database, HTTP nor queue: it receives durability as a function.
package engine

import (
	"slices"
	"time"

	"tranche/internal/workflow"
)

// Status is that of an execution or of one of its tasks (contract 5.6).
type Status string

// The statuses. An execution is never waiting or skipped.
const (
	StatusPending   Status = "pending"
	StatusRunning   Status = "running"
	StatusWaiting   Status = "waiting"
	StatusCompleted Status = "completed"
	StatusFailed    Status = "failed"
	StatusSkipped   Status = "skipped"
	StatusCancelled Status = "cancelled"
	StatusTimeout   Status = "timeout"
)

// State is how far an execution is. It round-trips exactly through its JSON and
// belongs to one execution of one plan.
type State struct {
	ExecutionID string    `json:"executionId,omitempty"`
	Attempt     int       `json:"attempt,omitempty"` // of the execution, from 1
	Status      Status    `json:"status,omitempty"`
	StartedAt   time.Time `json:"startedAt,omitzero"`
	// Deadline is when the execution times out; the start sets it to the
	// plan's time limit unless it is set before.
	Deadline    time.Time   `json:"deadline,omitzero"`
	CompletedAt time.Time   `json:"completedAt,omitzero"`
	Tasks       []TaskState `json:"tasks"` // in the order of the definition
	// Pins are the versions of the workflows that tasks name as latest, by
	// alias: found when the execution began, the same ever after.
	Pins map[string]int `json:"pins,omitempty"`
	// Runs counts the nested runs begun.
	Runs int `json:"runs,omitempty"`
}

// TaskState is how far one task is.
type TaskState struct {
	Status Status `json:"status,omitempty"`
	// Ready: the incoming edges let a pending task begin. Admitted: its when is true.
	// Skip: the task will be skipped. Later: the task waits until the sources have run
	// again (ResetSources).
	Ready    bool `json:"ready,omitempty"`
	Admitted bool `json:"admitted,omitempty"`
	Skip     bool `json:"skip,omitempty"`
	Later    bool `json:"later,omitempty"`
	// Attempt counts the attempts begun, automatic retries included.
	Attempt     int       `json:"attempt,omitempty"`
	StartedAt   time.Time `json:"startedAt,omitzero"` // of the first attempt; the value of now()
	CompletedAt time.Time `json:"completedAt,omitzero"`
	// WakeAt is the time at which a waiting task resumes: its nextRetryAt. For a wait for
	// a signal it is the end of the wait, zero if unlimited.
	WakeAt time.Time `json:"wakeAt,omitzero"`
	Output any       `json:"output,omitempty"`
	// Error is that of a failed task, or the last one of a task that is tried again.
	Error *workflow.TaskError `json:"error,omitempty"`
	End   *workflow.End       `json:"end,omitempty"`
	// Taken are the positions of the tasks whose edges were taken.
	Taken []int `json:"taken,omitempty"`
	// Answered says that the outside answered at least once; a retry of the
	// execution then uses another idempotency key, that of attempt KeyAttempt.
	Answered   bool `json:"answered,omitempty"`
	KeyAttempt int  `json:"keyAttempt,omitempty"`
	// Nested is how far the task's nested runs are; nil if it has none.
	Nested *Nested `json:"nested,omitempty"`
}

// NewState returns the state of an execution that has not begun, attempt 1.
func NewState(plan *workflow.Plan, executionID string) *State {
	state := &State{
		ExecutionID: executionID,
		Attempt:     1,
		Status:      StatusPending,
		Tasks:       pending(plan.Graph),
		Pins:        plan.Pins,
	}
	return state
}

// pending are the tasks of a graph before anything happened.
func pending(graph *workflow.Graph) []TaskState {
	tasks := make([]TaskState, len(graph.Tasks))
	for i := range tasks {
		tasks[i].Status = StatusPending
	}
	return tasks
}

// Ended reports whether an execution of this status is over.
func (s Status) Ended() bool { return s != StatusPending && s != StatusRunning }

// Ended reports whether the execution is over.
func (s *State) Ended() bool { return s.Status.Ended() }

// decided reports whether it is known which edges of a task are taken. A task
// that ends the graph or fails it never takes or leaves any.
func (t *TaskState) decided(task *workflow.Task) bool {
	return !t.ends(task) && (t.Status == StatusCompleted || t.Status == StatusSkipped || t.Status == StatusFailed)
}

// ends reports whether the task ended its graph: an end, or a failure that
// nothing handles.
func (t *TaskState) ends(task *workflow.Task) bool {
	return t.End != nil || t.Status == StatusFailed && task.OnError.Mode == workflow.ErrorFail
}

func (t *TaskState) takes(target int) bool { return slices.Contains(t.Taken, target) }

// SetEndTags says which tags of the end task that was reached the execution had not had
// before it.
func (s *State) SetEndTags(added []string) {
	for i := range s.Tasks {
		if end := s.Tasks[i].End; end != nil {
			end.Tags = added
		}
	}
}

// EndTags are the tags of the end task that was reached, if one was: once the execution
// has ended, those that it added.
func (s *State) EndTags() (tags []string) {
	for i := range s.Tasks {
		if end := s.Tasks[i].End; end != nil {
			tags = append(tags, end.Tags...)
		}
	}
	return tags
}
