package task

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/workflow"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

func TestTransform(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ fields, want string }{
		{`{}`, `{}`},
		{
			`{"a":"{{ input.income }}","b":"x {{ input.income }}","c":1.10,"d":null,"e":[true,"{{ input.name }}"],"f":{}}`,
			`{"a":1000.10,"b":"x 1000.10","c":1.10,"d":null,"e":[true,"Ada"],"f":{}}`,
		},
		{`{"total":"{{ $.part * 2 }}","part":"{{ input.income / 4 }}"}`, `{"part":250.025,"total":500.05}`},
		{`{"z":"{{ $.y }}","y":"{{ $.x }}","x":7}`, `{"x":7,"y":7,"z":7}`},
		{`{"a":{"b":"{{ $.c }}","d":{"e":"{{ $.a.b }}"}},"c":"{{ input.name }}"}`, `{"a":{"b":"Ada","d":{"e":"Ada"}},"c":"Ada"}`},
		{`{"a":{"x":1,"y":"{{ $.a.x + 1 }}"},"b":"{{ $.a }}"}`, `{"a":{"x":1,"y":2},"b":{"x":1,"y":2}}`},
		{`{"whole":"{{ input }}","part":"{{ $.whole.name }}"}`, `{"part":"Ada","whole":{"income":1000.10,"name":"Ada"}}`},
		{`{"missing":"{{ input.none.deeper }}"}`, `{"missing":null}`},
	} {
		output, result := run(t, program(t, "transform", `{"fields":`+c.fields+`}`), `{"income":1000.10,"name":"Ada"}`)
		require.Equal(t, c.want, output)
		require.Nil(t, result.Targets)
		require.Nil(t, result.End)
	}
	require.False(t, program(t, "transform", `{"fields":{}}`).Effect())
}

func TestTransformRefusals(t *testing.T) {
	t.Parallel()
	requireRefusals(t, "transform", []refusal{
		{`{}`, "tasks[0].config.fields", "is required"},
		{`{"fields":[]}`, "tasks[0].config.fields", "must be an object"},
		{`{"fields":{"a":"{{ $.a }}"}}`, "tasks[0].config.fields.a", "depends on itself"},
		{`{"fields":{"a":"{{ $.b }}","b":"{{ $.c }}","c":"{{ $.a }}"}}`, "tasks[0].config.fields.c", "depends on itself"},
		{`{"fields":{"a":{"x":"{{ $.a }}"}}}`, "tasks[0].config.fields.a.x", "depends on itself"},
		{`{"fields":{"a":"{{ $.nope }}"}}`, "tasks[0].config.fields.a", "is not a field"},
		{`{"fields":{"a":{"b":["x","{{ 1 + }}"]}}}`, "tasks[0].config.fields.a.b[1]", ""},
		{`{"fields":{"a":"{{ tasks.none.output }}"}}`, "tasks[0].config.fields.a", "task"},
	})
}

func TestTransformFailureNamesField(t *testing.T) {
	t.Parallel()
	failed := failing(t, program(t, "transform", `{"fields":{"a":{"b":[1,"{{ input.income * 2 }}"]}}}`), `{}`)
	require.Equal(t, workflow.CodeExpression, failed.Code)
	require.Contains(t, failed.Message, "fields.a.b[1]: ")
	require.False(t, failed.Retryable)
}
