package workflow

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/exactjson"
)

// keywords are JSON Schema keywords with values; fastValidator understands most.
var keywords = map[string][]string{
	"type":                 {`"string"`, `"number"`, `"integer"`, `"object"`, `"array"`, `"boolean"`, `["null","integer"]`, `["number","integer","object"]`},
	"enum":                 {`["a","bb",null]`, `[1,true]`, `[{}]`},
	"const":                {`"a"`, `1`, `null`},
	"minLength":            {`1`, `2`},
	"maxLength":            {`0`, `1`},
	"pattern":              {`"^[a-z]*$"`},
	"format":               {`"date"`},
	"minimum":              {`0`, `1.5`, `-1e2`},
	"exclusiveMinimum":     {`0`, `1`},
	"maximum":              {`1`, `1.50`},
	"exclusiveMaximum":     {`1`, `100`},
	"multipleOf":           {`0.5`},
	"minItems":             {`1`},
	"maxItems":             {`1`},
	"items":                {`{"type":"number"}`, `true`},
	"uniqueItems":          {`true`},
	"required":             {`["a"]`, `["c"]`, `["a","b"]`},
	"properties":           {`{"a":{"type":"string"},"b":true}`, `{"a":false}`},
	"additionalProperties": {`false`, `true`, `{"type":"string"}`},
	"minProperties":        {`1`},
	"$ref":                 {`"#/$defs/d"`},
	"not":                  {`{"type":"string"}`},
	"allOf":                {`[{"type":"number"},{"minimum":1}]`},
}

var acceptable = []string{
	`null`, `true`, `"a"`, `""`, `"bb"`, `"é"`, `"2026-01-31"`, `0`, `-0`, `1`, `1.0`, `1.5`, `1e2`, `-2`, `100000000000000000000000`,
	`[]`, `[1]`, `["a",1]`, `[1,1]`, `[{"a":1}]`, `{}`, `{"a":"a"}`, `{"a":1,"b":2}`, `{"c":"x"}`, `{"a":{"a":1},"b":["bb"]}`, `{"a":null,"c":1}`,
}

// checkAccepted checks that each accepted value matches. It returns how many
// values match, and how many of those are accepted.
func checkAccepted(t require.TestingT, document map[string]any) (matching, accepted int) {
	document["$defs"] = parsed(t, `{"d":{"type":["string","number","object","array"]}}`)
	c := compiler{}
	s := c.schema("", document)
	require.Empty(t, c.faults)
	for _, text := range acceptable {
		v := parsed(t, text)
		err := s.compiled.Validate(v)
		if s.fast.accepts(v) {
			require.NoError(t, err, "%v accepts %s", document, text)
			accepted++
		}
		if err == nil && s.fast != nil {
			matching++
		}
	}
	return matching, accepted
}

func TestFastValidatorConstAndEnum(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"const":"a","enum":["bb"]}`, `{"const":"a","enum":["a"]}`, `{"const":null,"enum":[true]}`} {
		document, isObject := parsed(t, text).(map[string]any)
		require.True(t, isObject)
		checkAccepted(t, document)
	}
}

// TestFastValidatorEachKeyword also checks that the fast validator accepts more
// than nine tenths of the matching values.
func TestFastValidatorEachKeyword(t *testing.T) {
	t.Parallel()
	allMatching, allAccepted := 0, 0
	for name, values := range keywords {
		for _, value := range values {
			for _, draft := range []string{"https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"} {
				m, a := checkAccepted(t, map[string]any{name: parsed(t, value), "$schema": draft})
				allMatching, allAccepted = allMatching+m, allAccepted+a
			}
		}
	}
	require.Greater(t, allAccepted*10, allMatching*9, "%d of %d", allAccepted, allMatching)
}

// TestFastValidatorCombinations draws schemas with several keywords.
func TestFastValidatorCombinations(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		if document, ok := drawSchema(t, "", 2).(map[string]any); ok {
			checkAccepted(t, document)
		}
	})
}

func drawSchema(t *rapid.T, at string, depth int) any {
	drawn := map[string]any{}
	names := rapid.SampledFrom(slices.Sorted(maps.Keys(keywords)))
	for _, name := range rapid.SliceOfN(names, 0, 4).Draw(t, at+"keywords") {
		drawn[name] = parsed(t, rapid.SampledFrom(keywords[name]).Draw(t, at+name))
	}
	if depth > 0 {
		for _, name := range []string{"items", "not"} {
			if rapid.IntRange(0, 3).Draw(t, at+name) == 0 {
				drawn[name] = drawSchema(t, at+name+".", depth-1)
			}
		}
		if rapid.Bool().Draw(t, at+"properties") {
			drawn["properties"] = map[string]any{"a": drawSchema(t, at+"a.", depth-1), "b": drawSchema(t, at+"b.", depth-1)}
		}
		if rapid.IntRange(0, 3).Draw(t, at+"allOf") == 0 {
			drawn["allOf"] = []any{drawSchema(t, at+"allOf.", depth-1)}
		}
	}
	if rapid.IntRange(0, 9).Draw(t, at+"bool") == 0 {
		return rapid.Bool().Draw(t, at+"is")
	}
	return drawn
}

func parsed(t require.TestingT, text string) any {
	v, err := exactjson.Decode([]byte(text))
	require.NoError(t, err)
	return v
}
