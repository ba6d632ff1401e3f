package ingest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/itemfile"
	"tranche/internal/workflow"
	"tranche/queries"
)

// refusedStatusCode is the status code of an item that does not match the input schema. An
// execute request with such an input gets the same.
const refusedStatusCode = 422

// checkedItem is an item that was checked against the input schema.
type checkedItem struct {
	fileName   string
	row        int
	borrowerID string
	input      string // the JSON that is stored
	refusal    string // the result of a refused item, as the JSON that is stored; else empty
}

// checkedPage is a page whose items were checked.
type checkedPage struct {
	columns []string // of its items, in their order
	items   []checkedItem
}

// check makes the inputs of a page's rows, adds the defaults, and validates each item. It
// writes the JSON that is stored.
func (p *page) check(plan *workflow.Plan) (checkedPage, error) {
	columns, items := itemfile.NewColumns(p.columns...), make([]checkedItem, len(p.items))
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
		columns.AddLeaves(it.Input)
		text, err := exactjson.Encode(it.Input)
		if err != nil {
			return checkedPage{}, fmt.Errorf("encode item %d of its page: %w", i, err)
		}
		items[i] = checkedItem{fileName: it.FileName, row: it.Row, borrowerID: queries.Value(execution.BorrowerOf(it.Input)), input: string(text)}
		if len(faults) > 0 {
			if items[i].refusal, err = refusal(it, faults); err != nil {
				return checkedPage{}, err
			}
		}
	}
	return checkedPage{columns: columns.Names(), items: items}, nil
}

// merge joins the faults that reading a row found and those of its schema. If both have a
// fault for a property, the reader's is more precise.
func merge(reading, schema []fault.Detail) []fault.Detail {
	for _, d := range schema {
		if !slices.ContainsFunc(reading, func(r fault.Detail) bool { return r.Field != "" && r.Field == d.Field }) {
			reading = append(reading, d)
		}
	}
	return reading
}

// refusal returns the result of an item whose input does not match. The message names file,
// row, column and reason.
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
