package batch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/fault"
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

// chunker turns items into chunks: it fills in defaults, validates against the
// input schema and writes what is to be stored. Valid items wait in the chunk
// where the workflow has no effects; the others are executions from now on.
type chunker struct {
	plan    *workflow.Plan
	clock   func() time.Time
	columns *columnSet
	next    int32 // index of the next item
	chunk   *queries.BatchItemsInsertParams
	bytes   int
	emit    func(*queries.BatchItemsInsertParams) error
}

// readAll emits the items of the sources from index next on. Where there is
// none at all, it is the fault of the first file.
func (c *chunker) readAll(sources []openSource) error {
	before, firstFile := c.next, ""
	for _, open := range sources {
		r, err := open()
		if err != nil {
			return err
		}
		passed, err := c.readFrom(r, int(before))
		if closer, ok := r.(io.Closer); ok {
			err = errors.Join(err, closer.Close())
		}
		if err != nil {
			return err
		}
		before -= int32(passed)
		if firstFile == "" {
			firstFile = r.from()
		}
	}
	if c.next == 0 && firstFile != "" {
		return &FileError{File: firstFile, Reason: "there is no item in it"}
	}
	return c.flush()
}

// readFrom adds the items of a source but the first ones, which it passes over
// and counts.
func (c *chunker) readFrom(r itemReader, before int) (passed int, err error) {
	for _, name := range r.columns() {
		c.columns.add(name)
	}
	if passed, err = skip(r, before); err != nil {
		return passed, err
	}
	return passed, c.read(r)
}

func (c *chunker) read(r itemReader) error {
	for {
		it, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if c.next == itemsMax {
			return &FileError{File: it.fileName, Row: it.row, Reason: fmt.Sprintf("a batch has at most %d items", itemsMax)}
		}
		if err := c.add(&it); err != nil {
			return err
		}
		if len(c.chunk.Ids) == chunkItemsMax || len(c.chunk.ChunkIndexes) == chunkItemsMax || c.bytes >= chunkBytesMax {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
}

func (c *chunker) add(it *item) error {
	if c.chunk == nil {
		c.chunk = &queries.BatchItemsInsertParams{FirstItem: c.next, CreatedAt: c.clock(), FailedStatusCode: refusedStatusCode}
	}
	faults := it.faults
	if !it.isBroken {
		var filled map[string]any
		filled, faults = c.plan.CheckInput(it.input)
		if faults = merge(it.faults, faults); len(faults) == 0 {
			it.input = filled
		}
	}
	c.columns.addLeaves(it.input)
	input, err := exactjson.Encode(it.input)
	if err != nil {
		return fmt.Errorf("write item %d: %w", c.next, err)
	}
	if len(faults) == 0 && !c.plan.Effects {
		c.keep(it, input)
	} else if err := c.record(it, input, faults); err != nil {
		return err
	}
	c.bytes += len(input)
	c.chunk.ItemCount++
	c.next++
	return nil
}

// keep leaves an item in the chunk.
func (c *chunker) keep(it *item, input []byte) {
	c.chunk.ChunkIndexes = append(c.chunk.ChunkIndexes, c.next)
	c.chunk.ChunkRowNumbers = append(c.chunk.ChunkRowNumbers, int32(it.row))
	c.chunk.ChunkFileNames = append(c.chunk.ChunkFileNames, it.fileName)
	c.chunk.ChunkInputs = append(c.chunk.ChunkInputs, string(input))
}

// record makes an execution of an item: pending, or failed if it has faults.
func (c *chunker) record(it *item, input []byte, faults []fault.Detail) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	result := ""
	if len(faults) > 0 {
		if result, err = refusal(it, faults); err != nil {
			return err
		}
		c.chunk.Failed++
	}
	c.chunk.Ids = append(c.chunk.Ids, id)
	c.chunk.Indexes = append(c.chunk.Indexes, c.next)
	c.chunk.RowNumbers = append(c.chunk.RowNumbers, int32(it.row))
	c.chunk.FileNames = append(c.chunk.FileNames, it.fileName)
	c.chunk.BorrowerIds = append(c.chunk.BorrowerIds, borrowerOf(it.input))
	c.chunk.Inputs = append(c.chunk.Inputs, string(input))
	c.chunk.Results = append(c.chunk.Results, result)
	c.bytes += len(result)
	return nil
}

// borrowerOf is the borrower that an input names, empty if it names none.
func borrowerOf(input map[string]any) string {
	if id := execution.BorrowerOf(input); id != nil {
		return *id
	}
	return ""
}

func (c *chunker) flush() error {
	if c.chunk == nil {
		return nil
	}
	chunk := c.chunk
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
func refusal(it *item, faults []fault.Detail) (string, error) {
	var b strings.Builder
	if it.row > 0 {
		fmt.Fprintf(&b, "%s, row %d: ", it.fileName, it.row)
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
		StatusCode: refusedStatusCode, Output: exactjson.Any{Value: map[string]any{}},
		Attachments: []workflow.Attachment{}, Notes: []string{}, Notices: []workflow.Notice{},
		ErrorMessage: &message, ErrorSubCode: fault.InputSchemaMismatch,
	}
	text, err := json.Marshal(result)
	return string(text), err
}
