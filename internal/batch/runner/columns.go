package runner

import (
	"slices"
	"sync"

	"github.com/google/uuid"

	"tranche/internal/itemfile"
)

// columnCacheMax bounds how many batches a columnCache has. The columns of a batch that was
// removed are sent to the database once more.
const columnCacheMax = 64

// columnCache has the recorded output columns of running batches, so that a statement
// contains only new ones: usually none.
type columnCache struct {
	mu      sync.Mutex
	batches map[uuid.UUID]*itemfile.Columns
}

// unseen returns the output columns of items that are not in the cache.
func (c *columnCache) unseen(batchID uuid.UUID, items []*finishedItem) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	columns := itemfile.NewColumns()
	if recorded := c.batches[batchID]; recorded != nil {
		columns = itemfile.NewColumns(recorded.Names()...)
	}
	n := len(columns.Names())
	for _, it := range items {
		columns.AddLeaves(it.Outcome.Output)
	}
	return slices.Clone(columns.Names()[n:])
}

// add adds columns that were recorded.
func (c *columnCache) add(batchID uuid.UUID, columns []string) {
	if len(columns) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.batches == nil || len(c.batches) == columnCacheMax && c.batches[batchID] == nil {
		c.batches = map[uuid.UUID]*itemfile.Columns{}
	}
	if c.batches[batchID] == nil {
		c.batches[batchID] = itemfile.NewColumns()
	}
	for _, name := range columns {
		c.batches[batchID].Add(name)
	}
}
