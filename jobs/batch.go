package jobs

import (
	"github.com/google/uuid"
	"github.com/riverqueue/river"
)

// BatchPreProcessing reads the sources of a batch for an attempt of it and records
// its items.
type BatchPreProcessing struct {
	TenantID uuid.UUID `json:"tenant_id"`
	BatchID  uuid.UUID `json:"batch_id"`
	Attempt  int32     `json:"attempt"` // from 1; 0, of an earlier build: any
}

// Kind names the job.
func (BatchPreProcessing) Kind() string { return "batch_pre_processing" }

// InsertOpts puts it on the queue of stages.
func (BatchPreProcessing) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueBatchStage}
}

// BatchItemRun runs the items of a batch from index FirstItem up to, not
// including, EndItem: those of a chunk or those that are recorded as pending,
// one where the workflow has effects.
type BatchItemRun struct {
	TenantID  uuid.UUID `json:"tenant_id"`
	BatchID   uuid.UUID `json:"batch_id"`
	FirstItem int32     `json:"first_item"`
	EndItem   int32     `json:"end_item"`
	IsChunk   bool      `json:"is_chunk,omitempty"`
}

// Kind names the job.
func (BatchItemRun) Kind() string { return "batch_item_run" }

// The first items of every batch go before the rest of all batches, so that a
// small one waits for no window of a large one, and chunks before items that have
// a job each, of which there are thousands. River takes the least priority first.
const (
	headItems     = 100
	priorityHead  = 1
	priorityChunk = 2
	priorityItem  = 3
)

// InsertOpts puts it on the queue of items.
func (r BatchItemRun) InsertOpts() river.InsertOpts {
	priority := priorityItem
	switch {
	case r.FirstItem < headItems:
		priority = priorityHead
	case r.IsChunk:
		priority = priorityChunk
	}
	return river.InsertOpts{Queue: QueueBatchItem, Priority: priority}
}

// BatchItemRetry makes the items of a batch ready for another attempt.
type BatchItemRetry struct {
	TenantID uuid.UUID `json:"tenant_id"`
	BatchID  uuid.UUID `json:"batch_id"`
}

// Kind names the job.
func (BatchItemRetry) Kind() string { return "batch_item_retry" }

// InsertOpts puts it on the queue of stages.
func (BatchItemRetry) InsertOpts() river.InsertOpts { return river.InsertOpts{Queue: QueueBatchStage} }

// BatchCancellation ends the items of a batch that do not run.
type BatchCancellation struct {
	TenantID uuid.UUID `json:"tenant_id"`
	BatchID  uuid.UUID `json:"batch_id"`
}

// Kind names the job.
func (BatchCancellation) Kind() string { return "batch_cancellation" }

// InsertOpts puts it on the queue of stages.
func (BatchCancellation) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueBatchStage}
}

// BatchPostProcessing writes the output package of a batch.
type BatchPostProcessing struct {
	TenantID uuid.UUID `json:"tenant_id"`
	BatchID  uuid.UUID `json:"batch_id"`
}

// Kind names the job.
func (BatchPostProcessing) Kind() string { return "batch_post_processing" }

// InsertOpts puts it on the queue of stages.
func (BatchPostProcessing) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueBatchStage}
}
