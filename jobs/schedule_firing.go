package jobs

import (
	"github.com/google/uuid"
	"github.com/riverqueue/river"
)

// ScheduleFiring starts the run that the firing of a schedule recorded together with this job.
// It continues an execution like TaskExecution, or enqueues the first stage of a batch.
type ScheduleFiring struct {
	TenantID uuid.UUID `json:"tenant_id"`
	// One of these is set.
	ExecutionID uuid.UUID `json:"execution_id,omitzero"`
	BatchID     uuid.UUID `json:"batch_id,omitzero"`
}

// Kind names the job.
func (ScheduleFiring) Kind() string { return "schedule_firing" }

// InsertOpts puts it on a queue of its own, so that thousands of schedules that are due in the
// same second do not delay executions that a caller waits for.
func (ScheduleFiring) InsertOpts() river.InsertOpts { return river.InsertOpts{Queue: QueueSchedule} }
