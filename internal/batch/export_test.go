package batch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// ItemID is itemID.
var ItemID = itemID

// HoldRecords has statements that record ended items wait until so many have ended.
func (s *Service) HoldRecords(items int) {
	g := s.records
	write := g.write
	var taken atomic.Int64
	g.write = func(ctx context.Context, tenantID, batchID uuid.UUID, own []*chunkItem) error {
		taken.Add(int64(len(own)))
		for ctx.Err() == nil && int(taken.Load())+g.waiting(batchID) < items {
			time.Sleep(time.Millisecond)
		}
		return write(ctx, tenantID, batchID, own)
	}
}

func (g *gatherer[T]) waiting(batchID uuid.UUID) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q := g.queues[batchID]; q != nil {
		return len(q.waiting)
	}
	return 0
}
