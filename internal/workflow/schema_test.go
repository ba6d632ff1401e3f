package workflow_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestCheckInput(t *testing.T) {
	t.Parallel()
	const loan = `{"type":"object","required":["amount","borrower"],"additionalProperties":false,"properties":{
		"amount":{"type":"number","minimum":0.01,"maximum":1000000,"multipleOf":0.01},
		"term":{"type":"integer","default":36,"exclusiveMinimum":0,"exclusiveMaximum":481},
		"kind":{"enum":["home","car"]},
		"borrower":{"$ref":"#/$defs/person"},
		"items":{"type":"array","maxItems":4,"uniqueItems":true,"items":{"type":"object","properties":{"amount":{"type":"number"},"currency":{"type":"string","default":"EUR"}}}}},
		"$defs":{"person":{"type":"object","required":["born"],"minProperties":1,"properties":{
			"born":{"type":"string","format":"date"},"email":{"type":"string","format":"email","maxLength":40},"tax":{"type":["string","null"],"pattern":"^[0-9]+$"},
			"address":{"type":"object","default":{},"properties":{"country":{"default":"NL"}}}}}}}`
	tests := map[string]struct {
		schema, input string
		want          string   // the filled input
		faults        []string // or what is wrong
	}{
		"defaults": {
			loan, `{"amount":1.10,"borrower":{"born":"1990-01-31"},"items":[{"amount":100000000000000000000.25},{"currency":"USD"}]}`,
			`{"amount":1.10,"term":36,"borrower":{"born":"1990-01-31","address":{"country":"NL"}},"items":[{"amount":100000000000000000000.25,"currency":"EUR"},{"currency":"USD"}]}`, nil,
		},
		"nothing missing": {
			loan, `{"amount":5,"term":12,"borrower":{"born":"1990-01-31","address":{"country":"BE"}}}`,
			`{"amount":5,"term":12,"borrower":{"born":"1990-01-31","address":{"country":"BE"}}}`, nil,
		},
		"faults": {
			loan, `{"amount":1.005,"term":"x","kind":"boat","secret":1,"borrower":{"born":"31.1.1990","email":"nobody","tax":"x1"},"items":[{"amount":1},{"amount":"1"},{"amount":true}]}`, "",
			[]string{
				"amount: must be a multiple of 0.01",
				"borrower.born: must be a valid date",
				"borrower.email: must be a valid email",
				"borrower.tax: must match the pattern of the schema",
				"items[1].amount: must be of type number",
				"items[2].amount: must be of type number",
				"kind: must be one of the values that the schema lists",
				"secret: is not a property that the schema allows; remove it or correct its name",
				"term: must be of type integer",
			},
		},
		"bounds": {loan, `{"amount":0.001,"term":481,"borrower":{}}`, "", []string{
			"amount: must be a multiple of 0.01",
			"amount: must be at least 0.01",
			"borrower.born: is required",
			"term: must be less than 481",
		}},
		"missing":        {loan, `{}`, "", []string{"amount: is required", "borrower: is required"}},
		"equal items":    {loan, `{"amount":1,"borrower":{"born":"1990-01-31"},"items":[{"amount":1.0},{"amount":1}]}`, "", []string{"items: must not have two equal items"}},
		"large exponent": {`{"properties":{"a":{"maximum":10}}}`, `{"a":1e400}`, "", []string{"a: must be at most 10"}},
		"any object":     {`{}`, `{"a":[1.50]}`, `{"a":[1.50]}`, nil},
		"null default":   {`{"properties":{"a":{"type":["string","null"],"default":null}}}`, `{}`, `{"a":null}`, nil},
		"wrong default":  {`{"properties":{"a":{"type":"string","default":5}}}`, `{}`, "", []string{"a: must be of type string"}},
		"all of":         {`{"allOf":[{"properties":{"a":{"default":1}}},{"required":["a"]}],"anyOf":[{"properties":{"b":{"default":1}}},true]}`, `{}`, `{"a":1}`, nil},
		"alternatives":   {`{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]},"b":{"oneOf":[{"minimum":1},{"minimum":2}]}}}`, `{"a":1,"b":3}`, "", []string{"a: must match one of the alternatives of the schema (anyOf)", "b: must match exactly one of the alternatives of the schema (oneOf)"}},
		"prefix items":   {`{"properties":{"p":{"prefixItems":[{"properties":{"a":{"default":1}}}],"items":{"properties":{"b":{"default":2}}}}}}`, `{"p":[{},{},5]}`, `{"p":[{"a":1},{"b":2},5]}`, nil},
		"draft-07 items": {`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"p":{"items":[{"properties":{"a":{"default":1}}}],"additionalItems":{"properties":{"b":{"default":2}}}},"q":{"items":{"properties":{"c":{"default":3}}}}}}`, `{"p":[{},{}],"q":[{}]}`, `{"p":[{"a":1},{"b":2}],"q":[{"c":3}]}`, nil},
		"draft-07 formats and dependencies": {
			`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"d":{"format":"date"}},"properties":{"d":{"$ref":"#/definitions/d"}},"dependencies":{"a":["b"]}}`, `{"d":"x","a":1}`, "",
			[]string{"b: is required together with a", "d: must be a valid date"},
		},
		"other properties":     {`{"additionalProperties":{"properties":{"a":{"default":1}}}}`, `{"x":{}}`, `{"x":{"a":1}}`, nil},
		"recursive":            {`{"$defs":{"n":{"properties":{"v":{"default":0},"next":{"$ref":"#/$defs/n"}}}},"$ref":"#/$defs/n"}`, `{"next":{"next":{}}}`, `{"v":0,"next":{"v":0,"next":{"v":0}}}`, nil},
		"default by reference": {`{"$defs":{"c":{"default":"EUR"}},"properties":{"c":{"$ref":"#/$defs/c"}}}`, `{}`, `{"c":"EUR"}`, nil},
		"false":                {`{"properties":{"a":false}}`, `{"a":1}`, "", []string{"a: does not match the schema"}},
		"names":                {`{"propertyNames":{"maxLength":2}}`, `{"abc":1}`, "", []string{": does not match the schema"}},
		"deep defaults": {
			`{"properties":{"a":{"$ref":"#"},"b":{"default":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}}}`,
			strings.Repeat(`{"a":`, 30) + `{}` + strings.Repeat(`}`, 30), "",
			[]string{": the schema's defaults would nest the input deeper than 64 levels"},
		},
		"endless defaults":        {`{"properties":{"a":{"$ref":"#","default":{}},"b":{"$ref":"#","default":{}}}}`, `{}`, "", []string{": the schema's defaults would fill in more than 10000 values"}},
		"format of an array item": {`{"properties":{"t":{"items":{"format":"date-time"}}}}`, `{"t":["2026-11-21T02:09:25.123Z","2026"]}`, "", []string{"t[1]: must be a valid date-time"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := compile(t, `{"tasks":[{"id":"a","type":"step"}],"inputSchema":`+test.schema+`}`)
			require.NoError(t, err)
			input, _ := decode(t, test.input).(map[string]any)
			got, details := plan.CheckInput(input)
			require.Empty(t, cmp.Diff(decode(t, test.input), any(input)), "the input was changed")
			if test.want == "" {
				require.Equal(t, test.faults, lines(details))
				require.Nil(t, got)
				return
			}
			require.Empty(t, details)
			require.Empty(t, cmp.Diff(decode(t, test.want), any(got)))
		})
	}
}

func TestSchemaFaults(t *testing.T) {
	t.Parallel()
	wide := make([]string, 18)
	for i := range wide {
		wide[i] = fmt.Sprintf(`"s%d":{"anyOf":[{"$ref":"#/$defs/s%d"},{"$ref":"#/$defs/s%d"}]}`, i, i+1, i+1)
	}
	const endless = "inputSchema: has a $ref that leads directly back to itself, so no value can match; remove the cycle"
	tests := map[string]struct{ schema, want string }{
		"file":              {`{"$ref":"file:///etc/passwd"}`, "inputSchema: has a $ref or $schema that leads outside the document; move that schema into $defs"},
		"web":               {`{"properties":{"a":{"$ref":"https://example.com/x.json"}}}`, "inputSchema: has a $ref or $schema that leads outside the document; move that schema into $defs"},
		"relative":          {`{"$ref":"other.json"}`, "inputSchema: has a $ref or $schema that leads outside the document; move that schema into $defs"},
		"another draft":     {`{"$schema":"http://json-schema.org/draft-04/schema#"}`, "inputSchema.$schema: must be JSON Schema 2020-12 or draft-07"},
		"not a text":        {`{"$schema":5}`, "inputSchema.$schema: must be JSON Schema 2020-12 or draft-07"},
		"inner draft":       {`{"$defs":{"x":{"$id":"x","$schema":"http://example.com/own"}}}`, "inputSchema: has a $ref or $schema that leads outside the document; move that schema into $defs"},
		"nowhere":           {`{"$ref":"#/$defs/x"}`, "inputSchema: has a $ref to a schema that does not exist"},
		"no such anchor":    {`{"$ref":"#x"}`, "inputSchema: has a $ref to a schema that does not exist"},
		"exponential":       {`{"$ref":"#/$defs/s0","$defs":{"s18":{},` + strings.Join(wide, ",") + `}}`, "inputSchema: combines its parts in more than 100000 ways; simplify the schema"},
		"refers to itself":  {`{"$ref":"#"}`, endless},
		"goes in a circle":  {`{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"allOf":[{"$ref":"#/$defs/y"}]},"y":{"anyOf":[true,{"$ref":"#/$defs/x"}]}}}`, endless},
		"negative length":   {`{"properties":{"a":{"maxLength":-1}}}`, "inputSchema.properties.a.maxLength: must be at least 0"},
		"required in place": {`{"required":true}`, "inputSchema.required: must be of type array"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := compile(t, `{"tasks":[{"id":"a","type":"step"}],"inputSchema":`+test.schema+`}`)
			require.Equal(t, []string{test.want}, lines(faults(t, err).Details))
		})
	}
}

// A schema reads nothing, whatever is there to be read.
func TestSchemasLoadNothing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "schema.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"type":"object"}`), 0o600))
	_, err := compile(t, `{"inputSchema":{"$ref":"file://`+file+`"},"tasks":[{"id":"a","type":"step"}]}`)
	require.Equal(t, []string{"inputSchema: has a $ref or $schema that leads outside the document; move that schema into $defs"}, lines(faults(t, err).Details))
}

// TestSchemaCost checks that a hostile schema or number takes no noticeable time.
func TestSchemaCost(t *testing.T) {
	t.Parallel()
	plan, err := compile(t, `{"tasks":[{"id":"a","type":"step"}],"inputSchema":{"properties":{"a":{"multipleOf":1e-400,"maximum":1e400}}}}`)
	require.NoError(t, err)
	input, _ := decode(t, `{"a":1e400}`).(map[string]any)
	begin := time.Now()
	_, details := plan.CheckInput(input)
	require.Empty(t, details)
	require.Less(t, time.Since(begin), time.Second)
}

func BenchmarkCheckInput(b *testing.B) {
	plan, err := compile(b, `{"tasks":[{"id":"a","type":"step"}],"inputSchema":{"type":"object","required":["amount"],"properties":{
		"amount":{"type":"number","minimum":0},"term":{"type":"integer","default":36},"income":{"type":"number"},"borrower":{"type":"object","properties":{"name":{"type":"string"},"born":{"type":"string","format":"date"}}}}}}`)
	require.NoError(b, err)
	input, _ := decode(b, `{"amount":12500.50,"income":3200.00,"borrower":{"name":"A. Borrower","born":"1985-05-05"}}`).(map[string]any)
	b.ReportAllocs()
	for b.Loop() {
		if _, details := plan.CheckInput(input); details != nil {
			b.Fatal(details)
		}
	}
}
