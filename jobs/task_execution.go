package jobs

import (
	"github.com/google/uuid"
	"github.com/riverqueue/river"
)

// TaskExecution runs the ready tasks of an execution, until the execution ends or waits for
// more than a few seconds.
type TaskExecution struct {
	TenantID    uuid.UUID `json:"tenant_id"`
	ExecutionID uuid.UUID `json:"execution_id"`
}

// Kind names the job.
func (TaskExecution) Kind() string { return "task_execution" }

// InsertOpts puts it on the interactive queue.
func (TaskExecution) InsertOpts() river.InsertOpts { return river.InsertOpts{Queue: QueueExecution} }
