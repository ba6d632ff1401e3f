package batch

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/itemfile"
	"tranche/internal/task"
	"tranche/internal/workflow"
)

// Whether a row is written as a regular one or read makes no difference to what is
// stored of it, by plans with defaults and without.
func TestRegularRowsAreStoredAsOthers(t *testing.T) {
	t.Parallel()
	const schema = `{"type": "object", "properties": {
		"name": {"type": "string", "maxLength": 10}, "amount": {"type": "number"}, "months": {"type": "integer", "maximum": 360},
		"address": {"type": "object", "properties": {"zip": {"type": "string"}}, "required": ["zip"]}}}`
	const file = "sep=,\nname,amount,months,borrowerId,other,address.zip,address.floor\n" +
		"Zoë,1.10,36,B-1,a<b>&c,01234,2\n" +
		"Zoë,1.10,,B-2,,01234,\n" + // without the property that may have a default
		"too long a name,1,,B-3,,,\n" + // refused by the schema
		"a,x,1,B-4,,,2\n" + // refused by its type too
		"a,1\n" + // not as the header says
		",,,,'=1,,\n"
	for _, schema := range []string{schema, strings.Replace(schema, `"maximum"`, `"default": 7, "maximum"`, 1)} {
		plan, written, read := planOf(t, schema), portionOf(t, file, schema), portionOf(t, file, schema)
		var w itemfile.RowWriter
		require.True(t, w.Write(&written.items[0]))
		for i := range read.items {
			read.items[i].Read()
			require.False(t, w.Write(&read.items[i]))
		}
		got, err := written.check(plan)
		require.NoError(t, err)
		want, err := read.check(plan)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// portionOf is all of a table.
func portionOf(t *testing.T, file, schema string) portion {
	t.Helper()
	r, err := itemfile.Open("a.csv", strings.NewReader(file), decodeObject(schema))
	require.NoError(t, err)
	var all []portion
	p := portioner{yield: func(p portion) error { all = append(all, p); return nil }}
	_, err = p.readFrom(r, 0)
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}

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

func TestSkipPassesOverItems(t *testing.T) {
	t.Parallel()
	r, err := itemfile.Open("a.csv", strings.NewReader("name\na\n\nb\nc\n"), nil)
	require.NoError(t, err)
	n, err := skip(r, 2)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	it, err := r.Next()
	require.NoError(t, err)
	it.Read()
	require.Equal(t, "c", it.Input["name"])
	require.Equal(t, 5, it.Row)
	n, err = skip(r, 2)
	require.NoError(t, err)
	require.Zero(t, n)
}
