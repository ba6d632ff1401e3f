package ingest

import (
	"time"

	"github.com/google/uuid"

	"tranche/internal/batch"
	"tranche/internal/itemfile"
	"tranche/internal/workflow"
	"tranche/queries"
)

// chunker puts items into chunks. Valid items wait in the chunk, unless their workflow
// waits. The others become executions when the chunk is recorded.
type chunker struct {
	plan    *workflow.Plan
	clock   func() time.Time
	columns *itemfile.Columns
	next    int32 // index of the next item
	chunk   *queries.BatchItemsInsertParams
	bytes   int // of the chunk's items
	emit    func(*queries.BatchItemsInsertParams) error
}

func (c *chunker) addAll(p checkedPage) error {
	for _, name := range p.columns {
		c.columns.Add(name)
	}
	for i := range p.items {
		if err := c.add(&p.items[i]); err != nil {
			return err
		}
		if len(c.chunk.Ids) == batch.ChunkItemsMax || len(c.chunk.ChunkIndexes) == batch.ChunkItems(c.plan) || c.bytes >= batch.ChunkBytesMax {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *chunker) add(it *checkedItem) error {
	if c.chunk == nil {
		c.chunk = &queries.BatchItemsInsertParams{FirstItem: c.next, FailedStatusCode: refusedStatusCode}
	}
	if it.refusal == "" && batch.WaitsInChunk(c.plan) {
		c.addWaiting(it)
	} else if err := c.addExecution(it); err != nil {
		return err
	}
	c.bytes += len(it.input) + len(it.refusal)
	c.chunk.ItemCount++
	c.next++
	return nil
}

// addWaiting adds an item that waits in the chunk.
func (c *chunker) addWaiting(it *checkedItem) {
	c.chunk.ChunkIndexes = append(c.chunk.ChunkIndexes, c.next)
	c.chunk.ChunkRowNumbers = append(c.chunk.ChunkRowNumbers, int32(it.row))
	c.chunk.ChunkFileNames = append(c.chunk.ChunkFileNames, it.fileName)
	c.chunk.ChunkInputs = append(c.chunk.ChunkInputs, it.input)
}

// addExecution adds an item that becomes an execution: failed if the item is refused, else
// pending.
func (c *chunker) addExecution(it *checkedItem) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	if it.refusal != "" {
		c.chunk.Failed++
	}
	c.chunk.Ids = append(c.chunk.Ids, id)
	c.chunk.Indexes = append(c.chunk.Indexes, c.next)
	c.chunk.RowNumbers = append(c.chunk.RowNumbers, int32(it.row))
	c.chunk.FileNames = append(c.chunk.FileNames, it.fileName)
	c.chunk.BorrowerIds = append(c.chunk.BorrowerIds, it.borrowerID)
	c.chunk.Inputs = append(c.chunk.Inputs, it.input)
	c.chunk.Results = append(c.chunk.Results, it.refusal)
	return nil
}

// flush emits the chunk, if it has items.
func (c *chunker) flush() error {
	if c.chunk == nil {
		return nil
	}
	chunk := c.chunk
	chunk.CreatedAt = c.clock() // not before the times in the ids
	chunk.Validated = chunk.ItemCount - chunk.Failed
	chunk.InputColumns = append([]string{}, c.columns.Names()...) // nil would be NULL
	c.chunk, c.bytes = nil, 0
	return c.emit(chunk)
}
