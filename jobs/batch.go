package jobs

import (
	"github.com/google/uuid"
	"github.com/riverqueue/river"
)

// BatchPreProcessing reads the sources of a batch and records its items, for one attempt.
type BatchPreProcessing struct {
	TenantID uuid.UUID `json:"tenant_id"`
	BatchID  uuid.UUID `json:"batch_id"`
	Attempt  int32     `json:"attempt"` // from 1; 0 in jobs of earlier versions, which matches any
}

// Kind names the job.
func (BatchPreProcessing) Kind() string { return "batch_pre_processing" }

// InsertOpts puts it on the queue of stages.
func (BatchPreProcessing) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueBatchStage}
}

// BatchItemRun runs items of a batch, from index FirstItem up to and without EndItem: the
// items of a chunk, or recorded items that are pending. If the workflow has effects, a job has
// one recorded item.
type BatchItemRun struct {
	TenantID  uuid.UUID `json:"tenant_id"`
	BatchID   uuid.UUID `json:"batch_id"`
	FirstItem int32     `json:"first_item"`
	EndItem   int32     `json:"end_item"`
	IsChunk   bool      `json:"is_chunk,omitempty"`
}

// Kind names the job.
func (BatchItemRun) Kind() string { return "batch_item_run" }

// The first items of a batch have priority over the rest of all batches, so that a small batch
// does not wait for a window of a large one. Chunks have priority over items with a job each,
// because there may be thousands of those. River works on the lowest number first.
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

// BatchItemRetry prepares the items of a batch for another attempt.
type BatchItemRetry struct {
	TenantID uuid.UUID `json:"tenant_id"`
	BatchID  uuid.UUID `json:"batch_id"`
}

// Kind names the job.
func (BatchItemRetry) Kind() string { return "batch_item_retry" }

// InsertOpts puts it on the queue of stages.
func (BatchItemRetry) InsertOpts() river.InsertOpts { return river.InsertOpts{Queue: QueueBatchStage} }

// BatchCancellation cancels the items of a batch that do not run.
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
