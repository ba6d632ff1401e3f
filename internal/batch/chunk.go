package batch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/itemfile"
	"tranche/internal/workflow"
	"tranche/queries"
)

// Limits of a chunk: of the items that one transaction records, and of those
// that wait in it until one job runs them.
const (
	chunkItemsMax = 1000
	chunkBytesMax = 4 << 20
)

// refusedStatusCode is the result's status code of an item that does not match
// the input schema, as of an execute call with such an input.
const refusedStatusCode = 422

// checked is an item that has been held against the input schema.
type checked struct {
	fileName   string
	row        int
	borrowerID string
	input      string // JSON as it is stored
	result     string // of one that is refused, JSON likewise; else empty
}

// checkedPortion is what has become of a portion.
type checkedPortion struct {
	columns []string // of its items, in their order
	items   []checked
}

// check makes the inputs of a portion's rows, fills in the defaults of its items,
// validates them and writes what is to be stored.
func (p *portion) check(plan *workflow.Plan) (checkedPortion, error) {
	columns, items := newColumnSet(p.columns...), make([]checked, len(p.items))
	for i := range p.items {
		it := &p.items[i]
		it.Read()
		faults := it.Faults
		if !it.IsBroken {
			var filled map[string]any
			filled, faults = execution.CheckInput(plan, it.Input)
			if faults = merge(it.Faults, faults); len(faults) == 0 {
				it.Input = filled
			}
		}
		columns.addLeaves(it.Input)
		text, err := exactjson.Encode(it.Input)
		if err != nil {
			return checkedPortion{}, fmt.Errorf("write item %d of its portion: %w", i, err)
		}
		items[i] = checked{fileName: it.FileName, row: it.Row, borrowerID: queries.Value(execution.BorrowerOf(it.Input)), input: string(text)}
		if len(faults) > 0 {
			if items[i].result, err = refusal(it, faults); err != nil {
				return checkedPortion{}, err
			}
		}
	}
	return checkedPortion{columns: columns.names, items: items}, nil
}

// chunker puts items into chunks. Valid items wait in the chunk, unless their
// workflow waits; the others are executions from now on.
type chunker struct {
	plan    *workflow.Plan
	clock   func() time.Time
	columns *columnSet
	next    int32 // index of the next item
	chunk   *queries.BatchItemsInsertParams
	bytes   int
	emit    func(*queries.BatchItemsInsertParams) error
}

func (c *chunker) addAll(p checkedPortion) error {
	for _, name := range p.columns {
		c.columns.add(name)
	}
	for i := range p.items {
		if err := c.add(&p.items[i]); err != nil {
			return err
		}
		if len(c.chunk.Ids) == chunkItemsMax || len(c.chunk.ChunkIndexes) == chunkItems(c.plan) || c.bytes >= chunkBytesMax {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *chunker) add(it *checked) error {
	if c.chunk == nil {
		c.chunk = &queries.BatchItemsInsertParams{FirstItem: c.next, FailedStatusCode: refusedStatusCode}
	}
	if it.result == "" && waitsInChunk(c.plan) {
		c.keep(it)
	} else if err := c.record(it); err != nil {
		return err
	}
	c.bytes += len(it.input) + len(it.result)
	c.chunk.ItemCount++
	c.next++
	return nil
}

// keep leaves an item in the chunk.
func (c *chunker) keep(it *checked) {
	c.chunk.ChunkIndexes = append(c.chunk.ChunkIndexes, c.next)
	c.chunk.ChunkRowNumbers = append(c.chunk.ChunkRowNumbers, int32(it.row))
	c.chunk.ChunkFileNames = append(c.chunk.ChunkFileNames, it.fileName)
	c.chunk.ChunkInputs = append(c.chunk.ChunkInputs, it.input)
}

// record makes an execution of an item: pending, or failed if it is refused.
func (c *chunker) record(it *checked) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	if it.result != "" {
		c.chunk.Failed++
	}
	c.chunk.Ids = append(c.chunk.Ids, id)
	c.chunk.Indexes = append(c.chunk.Indexes, c.next)
	c.chunk.RowNumbers = append(c.chunk.RowNumbers, int32(it.row))
	c.chunk.FileNames = append(c.chunk.FileNames, it.fileName)
	c.chunk.BorrowerIds = append(c.chunk.BorrowerIds, it.borrowerID)
	c.chunk.Inputs = append(c.chunk.Inputs, it.input)
	c.chunk.Results = append(c.chunk.Results, it.result)
	return nil
}

func (c *chunker) flush() error {
	if c.chunk == nil {
		return nil
	}
	chunk := c.chunk
	chunk.CreatedAt = c.clock() // not before any of the ids, which tell the time too
	chunk.Validated = chunk.ItemCount - chunk.Failed
	chunk.InputColumns = append([]string{}, c.columns.names...) // nil would be NULL
	c.chunk, c.bytes = nil, 0
	return c.emit(chunk)
}

// merge joins the faults of reading a row and those of its schema; where both
// complain of a property, reading knows better.
func merge(reading, schema []fault.Detail) []fault.Detail {
	for _, d := range schema {
		if !slices.ContainsFunc(reading, func(r fault.Detail) bool { return r.Field != "" && r.Field == d.Field }) {
			reading = append(reading, d)
		}
	}
	return reading
}

// refusal is the result of an item whose input does not match: its message
// names file, row, column and reason.
func refusal(it *itemfile.Item, faults []fault.Detail) (string, error) {
	var b strings.Builder
	if it.Row > 0 {
		fmt.Fprintf(&b, "%s, row %d: ", it.FileName, it.Row)
	}
	for i, d := range faults {
		if i > 0 {
			b.WriteString("; ")
		}
		if d.Field != "" {
			b.WriteString(d.Field + ": ")
		}
		b.WriteString(d.Message)
	}
	message := b.String()
	result := execution.Result{
		StatusCode: refusedStatusCode, Output: json.RawMessage("{}"), CustomOutput: json.RawMessage("null"),
		Attachments: []workflow.Attachment{}, Notes: []string{}, Notices: []workflow.Notice{},
		ErrorMessage: &message, ErrorSubCode: fault.InputSchemaMismatch,
	}
	text, err := result.JSON()
	return string(text), err
}
