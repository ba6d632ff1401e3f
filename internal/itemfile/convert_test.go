package itemfile

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPropertyAt(t *testing.T) {
	t.Parallel()
	schema := decodeObject(`{"properties": {
		"a": {"type": ["string", "integer", "null"]}, "b": {"const": true}, "c": {"$ref": "#/$defs/c~1d"}, "loop": {"$ref": "#/properties/loop"},
		"far": {"$ref": "https://example.com/x"}, "o": {"properties": {"p": {"type": "object"}}}, "n": {"type": "null"},
		"amount": {"anyOf": [{"$ref": "#/$defs/c~1d"}, {"type": "null"}]}, "due": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date-time"}]},
		"positive": {"allOf": [{"minimum": 0}, {"type": "number"}]}, "free": {"anyOf": [{"type": "number"}, {}]},
		"address": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/address"}]}, "circle": {"anyOf": [{"$ref": "#/properties/circle"}, {"$ref": "#/properties/circle"}]},
		"seen": {"format": "date-time"}, "sent": {"format": "date", "anyOf": [{"type": "string"}, {"type": "null"}]},
		"scores": {"additionalProperties": {"type": "number"}, "properties": {"by": {"type": "string"}}}},
		"allOf": [{"properties": {"later": {"type": "boolean"}, "a": {"type": "array"}}}],
		"oneOf": [{"properties": {"rate": {"type": "number"}}}, {"properties": {"fee": {"type": "number"}}}],
		"$defs": {"c/d": {"type": "number"}, "address": {"type": "object", "properties": {"number": {"type": "integer"}}}}}`)
	for path, want := range map[string]property{
		"a": {types: typeString | typeNumber}, "b": {types: typeBoolean}, "c": {types: typeNumber}, "loop": {}, "far": {}, "n": {}, "unknown": {},
		"o.p": {types: typeObject}, "o.p.q": {},
		"amount": {types: typeNumber}, "due": {types: typeString, format: "date-time"}, "positive": {types: typeNumber}, "free": {types: typeNumber | typeString},
		"address": {types: typeObject}, "address.number": {types: typeNumber}, "address.zip": {types: typeString}, "circle": {},
		"seen": {format: "date-time"}, "sent": {types: typeString, format: "date"},
		"scores.x": {types: typeNumber}, "scores.by": {types: typeString},
		"later": {types: typeBoolean}, "rate": {types: typeNumber | typeString},
	} {
		require.Equal(t, want, propertyAt(schema, strings.Split(path, ".")), path)
	}
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
		{"123e4567", typeString | typeNumber, "123e4567"}, // no number that there can be
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
		require.Equal(t, text != "" && strings.IndexByte("=+-@\t", text[0]) >= 0 || isFormula(text), Escape(text) == "'"+text)
		require.False(t, Escape(text) != "" && isFormula(Escape(text)) && Escape(text)[0] != '\'')
	})
}
