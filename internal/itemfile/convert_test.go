package itemfile

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTypesAt(t *testing.T) {
	t.Parallel()
	schema := decodeObject(`{"properties": {
		"a": {"type": ["string", "integer", "null"]}, "b": {"const": true}, "c": {"$ref": "#/$defs/c~1d"}, "loop": {"$ref": "#/properties/loop"},
		"far": {"$ref": "https://example.com/x"}, "o": {"properties": {"p": {"type": "object"}}}, "n": {"type": "null"}},
		"$defs": {"c/d": {"type": "number"}}}`)
	for path, want := range map[string]typeSet{
		"a": typeString | typeNumber, "b": typeBoolean, "c": typeNumber, "loop": 0, "far": 0, "n": 0, "unknown": 0,
	} {
		require.Equal(t, want, typesAt(schema, []string{path}), path)
	}
	require.Equal(t, typeObject, typesAt(schema, []string{"o", "p"}))
	require.Zero(t, typesAt(schema, []string{"o", "p", "q"}))
}

func TestConvert(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cell  string
		types typeSet
		want  any
	}{
		{"1.10", typeNumber, json.Number("1.10")},
		{" -0.50 ", typeNumber, json.Number("-0.50")},
		{"123456789012345678901234567890.123", typeNumber, json.Number("123456789012345678901234567890.123")},
		{"1e5", typeNumber, json.Number("1e5")},
		{"'-5", typeNumber, json.Number("-5")},
		{"1.10", typeString, "1.10"},
		{"'=SUM(A1)", typeString, "=SUM(A1)"},
		{"'plain", typeString, "'plain"},
		{"''=x", typeString, "'=x"},
		{"'+49 30", 0, "+49 30"},
		{"12", typeString | typeNumber, json.Number("12")},
		{"12a", typeString | typeNumber, "12a"},
		{"False", typeBoolean, false},
		{`{"a":[1.0]}`, typeObject, map[string]any{"a": []any{json.Number("1.0")}}},
	} {
		got, reason := convert(c.cell, c.types)
		require.Empty(t, reason, c.cell)
		require.Equal(t, c.want, got, c.cell)
	}
}

func TestIsNumberIsJSONs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[-+]?[0-9.]{0,4}[eE.]?[-+]?[0-9]{0,2}`).Draw(t, "text")
		var n json.Number
		want := text != "" && json.Unmarshal([]byte(text), &n) == nil && json.Valid([]byte(text))
		require.Equal(t, want, isNumber(text), text)
	})
}

func TestEscapeComesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching("'{0,3}[=+@\t-]?[ab'=]{0,3}").Draw(t, "text")
		require.Equal(t, text, unescape(Escape(text)))
		require.False(t, Escape(text) != "" && isFormula(Escape(text)) && Escape(text)[0] != '\'')
	})
}
