package output

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/exactjson"
	"tranche/internal/itemfile"
	"tranche/queries"
)

func TestCells(t *testing.T) {
	t.Parallel()
	for leaf, want := range map[string]string{
		`null`: "", `true`: "true", `-1.50E+2`: "-1.50E+2", `"a\u003cb"`: "a<b", `"=1"`: "'=1", `"-"`: "'-", `""`: "",
		`[1.0, "\u003c=", {"b":1, "a":null}]`: `[1.0,"<=",{"a":null,"b":1}]`, `{}`: "{}", `[]`: "[]",
	} {
		value, err := exactjson.Decode([]byte(leaf))
		require.NoError(t, err, leaf)
		cell, err := cellOf(value)
		require.NoError(t, err, leaf)
		require.Equal(t, want, cell, leaf)
	}
}

func TestCellsOfColumns(t *testing.T) {
	t.Parallel()
	columns := itemfile.NewColumns("a", "b.c", `d\.e`, "absent")
	cells := []string{"", "", "", "of the item before"}
	require.NoError(t, fillCells(columns, cells, []byte(`{"a": 1.10, "b": {"c": "x", "unknown": 1}, "d.e": [true]}`)))
	require.Equal(t, []string{"1.10", "x", "[true]", ""}, cells)
}

// Text that is no JSON object is an error of the report.
func TestTextIsNoObject(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `[]`, `null`, `{`, `{"a`, `{"a":`, `{"a":1`, `{"a":{"b":[1,2`, `{1:2}`, `{"a" 1}`, `{,}`} {
		require.Error(t, fillCells(itemfile.NewColumns("a", "a.b"), make([]string, 2), []byte(text)), text)
		_, err := newItemResult(&queries.BatchItemsListResultsRow{Input: []byte(`{}`), Result: []byte(text)})
		require.Error(t, err, text)
	}
}
