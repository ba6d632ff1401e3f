package batch

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/exactjson"
	"tranche/queries"
)

// jsonObject draws an object with whatever JSON can hold, nested up to a depth.
func jsonObject(depth int) *rapid.Generator[map[string]any] {
	texts := rapid.OneOf(rapid.StringMatching(`[a-z.:,"\\<>{}\[\] é\n=']{0,6}`), rapid.String().Filter(func(s string) bool { return !strings.Contains(s, "\x00") }))
	return rapid.Custom(func(t *rapid.T) map[string]any {
		object := map[string]any{}
		for _, name := range rapid.SliceOfN(texts, 0, 4).Draw(t, "names") {
			switch kind := rapid.IntRange(0, 6).Draw(t, "kind"); {
			case kind == 0 && depth > 0:
				object[name] = jsonObject(depth-1).Draw(t, "object")
			case kind == 1 && depth > 0:
				object[name] = []any{texts.Draw(t, "item"), nil, jsonObject(depth-1).Draw(t, "item")}
			case kind == 2:
				object[name] = json.Number(rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number"))
			case kind == 3:
				object[name] = rapid.Bool().Draw(t, "bool")
			case kind == 4:
				object[name] = nil
			default:
				object[name] = texts.Draw(t, "text")
			}
		}
		return object
	})
}

// The walk finds in a text what reading its values would find, however the text
// is written.
func TestLeavesAreThoseOfTheValues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		object := jsonObject(3).Draw(t, "object")
		want, leaves := map[string]any{}, 0
		flatten(nil, object, func(path []byte, leaf any) { want[string(path)], leaves = leaf, leaves+1 })
		require.Len(t, want, leaves, "each leaf has a column of its own")
		compact, err := exactjson.Encode(object)
		require.NoError(t, err)
		var wide, html bytes.Buffer
		require.NoError(t, json.Indent(&wide, compact, " ", "\t"))
		json.HTMLEscape(&html, compact)
		for _, text := range []string{string(compact), wide.String(), html.String()} {
			got := map[string]any{}
			walk := jsonWalk{text: text}
			require.NoError(t, walk.leaves(nil, func(path []byte, leaf string) error {
				value, err := exactjson.Decode([]byte(leaf))
				got[string(path)] = value
				return err
			}))
			require.Len(t, text, walk.at)
			require.Empty(t, cmp.Diff(want, got))
		}
	})
}

func TestCells(t *testing.T) {
	t.Parallel()
	for leaf, want := range map[string]string{
		`null`: "", `true`: "true", `-1.50E+2`: "-1.50E+2", `"a\u003cb"`: "a<b", `"=1"`: "'=1", `"-"`: "'-", `""`: "",
		`[1.0, "\u003c=", {"b":1, "a":null}]`: `[1.0,"<=",{"a":null,"b":1}]`, `{}`: "{}", `[]`: "[]",
	} {
		cell, err := cellOf(leaf)
		require.NoError(t, err, leaf)
		require.Equal(t, want, cell, leaf)
	}
}

// What the database does not let in ends the report rather than the process.
func TestWalkOfWhatIsNoObject(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `[]`, `null`, `{`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{"a":"b`, `{"a":"b\\`, `{"a":{"b":[1,2`, `{1:2}`, `{"a" 1}`, `{,}`, `{"a":"\ud800"}`} {
		err := newColumnSet("a", "a.b").fill(make([]string, 2), text)
		require.Error(t, err, text)
	}
	for _, result := range []string{``, `[]`, `{}`, `null`, `{"output":{}`} {
		_, err := newItemResult(&queries.BatchItemsListResultsRow{Input: []byte(`{}`), Result: []byte(result)})
		require.ErrorIs(t, err, errNotJSON, result)
	}
}
