package batch

import (
	"context"

	"tranche/internal/limit"
)

// Processors bounds how much work of batches that needs a processor runs concurrently, and
// schedules it fairly among tenants and batches. All stages of a process share one.
type Processors struct {
	Count int
	slots *limit.Fair
}

// NewProcessors returns Processors with so many slots.
func NewProcessors(count int) *Processors {
	return &Processors{Count: count, slots: limit.NewFair(count, 0)}
}

// Acquire waits for a slot. The caller must call release when its work is done. The error
// is ctx's.
func (p *Processors) Acquire(ctx context.Context, key Key) (release func(), err error) {
	return p.slots.Acquire(ctx, limit.Request{TenantID: key.TenantID, BatchID: key.ID})
}
