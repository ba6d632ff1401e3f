package batch

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/task"
	"tranche/internal/workflow"
)

// Whether a row is written as a regular one or not makes no difference to what is
// stored of it: for rows of all kinds of cells, by plans with defaults and without.
func TestRegularRows(t *testing.T) {
	t.Parallel()
	const seed = 22
	random := rand.New(rand.NewPCG(seed, 0))
	headers := map[string]bool{ // whether there are regular rows
		"name,amount,months,owner,grade,tags,address.zip,address.floor":        true,
		"address.floor,tags,x.y.z,x.y.a,x.b,_note,owner,name,amount,other,ä<>": true,
		"borrowerId,é.\"q\".z,é.\"q\".b":                                       true,
		"name,amount,,grade":                                                   false, // a column without a name
		"name,address,address.zip":                                             false, // one within another
		"name,meta,amount":                                                     false, // an object as JSON
	}
	cells := []string{
		"", "", "Zoë", "a<b>&c", "line\nbreak", "1", "-12.50", "1e400", "007", "TRUE", "false", "A", "[1, {\"b\": 2.50}]", "[", "{\"a\": {\"b\": 1}}",
		"{}", "'=1+1", "\x00", "\xff", " 12 ", "\u2028", strings.Repeat("9", 400),
	}
	for header, hasRegular := range headers {
		for _, schema := range []string{regularSchema, strings.Replace(regularSchema, `"maximum"`, `"default": 7, "maximum"`, 1)} {
			plan := planOf(t, schema)
			l, err := newLayout("a.csv", strings.Split(header, ","), decodeObject(schema))
			require.NoError(t, err)
			generic := *l
			generic.members = nil
			declared := (&tableReader{layout: l}).columns()
			written, read := portion{columns: declared}, portion{columns: declared}
			for row := range 300 {
				values := make([]string, len(l.named))
				if random.IntN(20) == 0 {
					values = values[:random.IntN(len(values))]
				}
				for i := range values {
					if random.IntN(2) == 0 {
						values[i] = cells[random.IntN(len(cells))]
					}
				}
				if random.IntN(20) == 0 {
					values = append(values, "more")
				}
				written.items = append(written.items, item{fileName: "a.csv", row: row, layout: l, cells: values})
				read.items = append(read.items, item{fileName: "a.csv", row: row, layout: &generic, cells: values})
			}
			var w rowWriter
			require.Equal(t, hasRegular, slices.ContainsFunc(written.items, func(it item) bool { return w.write(&it) }), header)
			got, err := written.check(plan)
			require.NoError(t, err)
			want, err := read.check(plan)
			require.NoError(t, err)
			require.Equal(t, want, got, header)
		}
	}
}

const regularSchema = `{"type": "object", "properties": {
	"name": {"type": "string", "maxLength": 10}, "amount": {"type": "number"}, "months": {"type": "integer", "maximum": 360},
	"owner": {"type": "boolean"}, "grade": {"enum": ["A", "", 1]}, "tags": {"type": ["array", "string"]}, "meta": {"type": "object"},
	"address": {"type": "object", "properties": {"zip": {"type": "string"}, "floor": {"type": "integer"}}, "required": ["zip"]}}}`

func planOf(t *testing.T, schema string) *workflow.Plan {
	t.Helper()
	tasks := decodeObject(`{"tasks": [{"id": "end", "type": "end", "config": {"output": {}}}], "edges": []}`)
	types := task.Types(task.Ports{})
	parsed, details := workflow.Parse(decodeObject(schema), tasks["tasks"], tasks["edges"], types)
	require.Empty(t, details)
	plan, err := workflow.Compile(parsed, types)
	require.NoError(t, err)
	return plan
}
