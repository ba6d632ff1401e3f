// Package engine decides which task of an execution runs next and what its
// result means. Deciding is the pure function Next over a plan, a state and an
// event; doing is Runner, which drives the programs of a plan with it. It must
// know neither database, HTTP nor queue: durability is a function passed in.
package engine

import (
	"time"

	"tranche/internal/workflow"
)

// Status is that of an execution or of one of its tasks (decisions 5.6).
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

// State is how far an execution is. It round-trips exactly through
// encoding/json and belongs to one execution of one plan.
type State struct {
	ExecutionID string      `json:"executionId"`
	Attempt     int         `json:"attempt"` // of the execution, from 1
	Status      Status      `json:"status"`
	StartedAt   time.Time   `json:"startedAt,omitzero"`
	Deadline    time.Time   `json:"deadline,omitzero"` // set at the start to the plan's limit unless it is set before
	CompletedAt time.Time   `json:"completedAt,omitzero"`
	Tasks       []TaskState `json:"tasks"` // in the order of the definition
}

// TaskState is how far one task is.
type TaskState struct {
	Status      Status              `json:"status"`
	Attempt     int                 `json:"attempt,omitempty"` // attempts begun, automatic retries included
	StartedAt   time.Time           `json:"startedAt,omitzero"`
	CompletedAt time.Time           `json:"completedAt,omitzero"`
	WakeAt      time.Time           `json:"wakeAt,omitzero"` // when a waiting task goes on (nextRetryAt)
	Output      any                 `json:"output,omitempty"`
	Error       *workflow.TaskError `json:"error,omitempty"`
	End         *workflow.End       `json:"end,omitempty"`
}

// NewState returns the state of an execution that has not begun, attempt 1.
func NewState(plan *workflow.Plan, executionID string) *State {
	return &State{ExecutionID: executionID, Attempt: 1, Status: StatusPending, Tasks: make([]TaskState, len(plan.Graph.Tasks))}
}

// Reset makes a state ready for a retry of the execution (decisions 5.7): it
// counts the attempt, keeps what completed, and resets every other task with
// its descendants; after an end with failed everything. Tasks in skip are
// passed over. It returns the ids of the tasks that are passed over and of
// those that run again; state itself is changed. Unknown ids in skip are returned as error (Invalid).
func Reset(plan *workflow.Plan, state *State, skip []string) (skipped, resumed []string, err error) {
	return nil, nil, nil
}
