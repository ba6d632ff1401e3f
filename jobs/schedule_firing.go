package jobs

import (
	"github.com/google/uuid"
	"github.com/riverqueue/river"
)

// ScheduleFiring begins with the run that a firing of a schedule recorded
// together with this job: it goes on with an execution like TaskExecution, or
// enqueues the first stage of a batch.
type ScheduleFiring struct {
	TenantID uuid.UUID `json:"tenant_id"`
	// One of these is set.
	ExecutionID uuid.UUID `json:"execution_id,omitzero"`
	BatchID     uuid.UUID `json:"batch_id,omitzero"`
}

// Kind names the job.
func (ScheduleFiring) Kind() string { return "schedule_firing" }

// InsertOpts puts it on a queue of its own: thousands of schedules due in the
// same second do not delay executions that somebody waits for.
func (ScheduleFiring) InsertOpts() river.InsertOpts { return river.InsertOpts{Queue: QueueSchedule} }
