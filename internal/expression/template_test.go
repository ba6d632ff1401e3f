package expression_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"tranche/internal/expression"
)

func TestTemplate(t *testing.T) {
	t.Parallel()
	env := environment(t)
	for _, tc := range [][2]string{
		{``, `""`},
		{`plain`, `"plain"`},
		{`{ "a": 1 }`, `"{ \"a\": 1 }"`},
		{`}} {`, `"}} {"`},
		{`{{ input.amount }}`, `1.10`},
		{`{{input.items[0]}}`, `{"price":0.1,"qty":3,"tag":"a"}`},
		{`{{ input.missing }}`, `null`},
		{`{{ true }}`, `true`},
		{` {{ input.amount }}`, `" 1.10"`},
		{`{{ input.amount }}{{ input.amount }}`, `"1.101.10"`},
		{`Hello {{ input.name }}!`, `"Hello Ana Núñez!"`},
		{`[{{ input.missing }}]`, `"[]"`},
		{`n={{ input.amount * 1 }}`, `"n=1.1"`},
		{`n={{ input.exponent }} {{ input.exponent * 1 }}`, `"n=1e3 1000"`},
		{`{{ input.scores }} and {{ {"a": 1.50} }}`, `"[700,650.5,720] and {\"a\":1.50}"`},
		{`{{ true }}, {{ now() }}`, `"true, 2026-01-31T08:30:00.123Z"`},
		{`{{ {"a": 1}.a }}`, `1`},
		{`{{{"a": {"b": 1}}.a.b}}`, `1`},
		{`{{ {"a":{"b":1}}}}`, `{"a":{"b":1}}`},
		{`{{ "}}" }}`, `"}}"`},
		{`{{ '}}' + "\"}}" }}`, `"}}\"}}"`},
		{"{{ `}}` }}", `"}}"`},
		{"{{ `\\` }}b", `"\\b"`},
		{`{{ "{{" }}`, `"{{"`},
		{`{{ 1 /* }} */ }}`, `1`},
		{"{{ 1 // }}\n }}", `1`},
		{`{{ map([1], {# + 1}) }}`, `[2]`},
		{`é{{ "ñ" }}ü`, `"éñü"`},
		{`{"amount": {{ input.amount }}, "name": {{ toJson(input.name) }}}`, `"{\"amount\": 1.10, \"name\": \"Ana Núñez\"}"`},
		{`{{ uuid() == uuid() }}`, `true`},
	} {
		template, err := expression.CompileTemplate(tc[0], all)
		require.NoError(t, err, tc[0])
		v, err := template.Eval(env)
		require.NoError(t, err, tc[0])
		require.Equal(t, tc[1], encode(t, v), tc[0])
		require.Equal(t, tc[0], template.Source())
	}
}

func TestTemplateKeepsNumberText(t *testing.T) {
	t.Parallel()
	template, err := expression.CompileTemplate("{{ input.amount }}", expression.Scope{})
	require.NoError(t, err)
	v, err := template.Eval(&expression.Env{Input: map[string]any{"amount": json.Number("1.10")}})
	require.NoError(t, err)
	require.Equal(t, json.Number("1.10"), v)
}

func TestTemplateRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		source       string
		line, column int
		message      string
	}{
		{`a {{ input.a`, 1, 3, "{{ is not closed; add }}"},
		{`{{ "}} `, 1, 1, "{{ is not closed; add }}"},
		{`{{ {"a": 1 }}`, 1, 1, "{{ is not closed; add }}"},
		{`{{}}`, 1, 3, "the expression is empty"},
		{"ñ\n {{ foo }}", 2, 5, "“foo” does not exist"},
		{"{{ 1 }} {{ 1 + }}", 1, 15, "the expression ends too early"},
		{strings.Repeat("{{1}}", 2100), 1, 10006, "a text must have at most 1,000 {{ … }}"},
		{"\xff", 1, 1, "not valid UTF-8"},
	} {
		_, err := expression.CompileTemplate(tc.source, all)
		var e *expression.Error
		require.ErrorAs(t, err, &e, tc.source)
		require.Contains(t, e.Message, tc.message)
		if !strings.HasPrefix(tc.source, "{{1}}") {
			require.Equal(t, expression.Position{Line: tc.line, Column: tc.column}, e.Position, tc.source)
		}
	}
	template, err := expression.CompileTemplate("x\ny {{ input.a + 1 }}", all)
	require.NoError(t, err)
	_, err = template.Eval(environment(t))
	require.EqualError(t, err, "line 2, column 14: + needs two numbers or two texts, but input.a is null")
}

func TestTemplateParts(t *testing.T) {
	t.Parallel()
	template, err := expression.CompileTemplate("https://x/{{ input.name }}?n={{ input.amount }}&z={{ input.none }}", all)
	require.NoError(t, err)
	parts, err := template.EvalParts(environment(t))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff([]expression.Part{
		{Literal: true, Text: "https://x/", Value: "https://x/"},
		{Text: "Ana Núñez", Value: "Ana Núñez"},
		{Literal: true, Text: "?n=", Value: "?n="},
		{Text: "1.10", Value: json.Number("1.10")},
		{Literal: true, Text: "&z=", Value: "&z="},
		{Text: "", Value: nil},
	}, parts))
	require.False(t, template.Whole())
	_, ok := template.Literal()
	require.False(t, ok)

	template, err = expression.CompileTemplate("{{ tasks.a.output }}", all)
	require.NoError(t, err)
	require.True(t, template.Whole())
	require.Equal(t, []string{"a"}, template.TaskRefs())

	template, err = expression.CompileTemplate("just text", all)
	require.NoError(t, err)
	text, ok := template.Literal()
	require.True(t, ok)
	require.Equal(t, "just text", text)
	require.False(t, template.Whole())

	template, err = expression.CompileTemplate("{{ $.b }} {{ $.a + tasks.t.output }}", all)
	require.NoError(t, err)
	require.Equal(t, []string{"t"}, template.TaskRefs())
	require.Equal(t, []string{"a", "b"}, fieldPaths(t, template.Source(), all))
}

// What a template tells of itself decides where it may stand, and what has to be recorded
// before it is evaluated.
func TestTemplateReferences(t *testing.T) {
	t.Parallel()
	for text, isConstant := range map[string]bool{
		"x": true, "{{ 1 + 1 }}": true, `x{{ upper("a") }}`: true,
		"x{{ input }}": false, "x{{ input.a }}": false, "x{{ custom.a }}": false, "x{{ item }}": false, "x{{ execution.id }}": false,
		"x{{ tasks.t.output }}": false, "x{{ tasks.t }}": false, "x{{ $.a }}": false,
		"x{{ now() }}": false, "x{{ uuid() }}": false, `x{{ callbackUrl("w") }}`: false,
	} {
		template, err := expression.CompileTemplate(text, all)
		require.NoError(t, err)
		_, ok := template.Constant()
		require.Equal(t, isConstant, ok, text)
		tree, faults := expression.CompileTree(map[string]any{"a": []any{text}}, all)
		require.Empty(t, faults)
		for _, refs := range []interface {
			ReadsNow() bool
			WaitRefs() []string
		}{template, tree} {
			require.Equal(t, strings.Contains(text, "now"), refs.ReadsNow(), text)
			require.Equal(t, strings.Contains(text, "callbackUrl"), len(refs.WaitRefs()) == 1, text)
		}
	}
}

func TestTree(t *testing.T) {
	t.Parallel()
	env := environment(t)
	source := decode(t, `{"amount": "{{ input.amount }}", "text": "n={{ input.score }}", "n": 1.50, "{{ key }}": null,
		"list": [1, "{{ tasks.score.output.value }}", {"deep": "{{ $.total }}"}], "fixed": {"a": ["b"]}}`)
	tree, faults := expression.CompileTree(source, all)
	require.Empty(t, faults)
	v, err := tree.Eval(env)
	require.NoError(t, err)
	require.Equal(t,
		`{"amount":1.10,"fixed":{"a":["b"]},"list":[1,700.00,{"deep":5.00}],"n":1.50,"text":"n=700","{{ key }}":null}`, encode(t, v))
	require.Equal(t, []string{"score"}, tree.TaskRefs())
	require.Equal(t, []string{"total"}, tree.FieldPaths())
	_, ok := tree.Literal()
	require.False(t, ok)
	again, err := tree.Eval(&expression.Env{})
	require.NoError(t, err)
	require.Equal(t, `{"amount":null,"fixed":{"a":["b"]},"list":[1,null,{"deep":null}],"n":1.50,"text":"n=","{{ key }}":null}`, encode(t, again))
	require.Contains(t, encode(t, v), `"amount":1.10`, "a result is changed by the next one")

	for _, text := range []string{`null`, `1.10`, `"x"`, `{"a": ["b", 1]}`} {
		tree, faults := expression.CompileTree(decode(t, text), all)
		require.Empty(t, faults)
		v, ok := tree.Literal()
		require.True(t, ok)
		require.Equal(t, decode(t, text), v)
		v, err := tree.Eval(env)
		require.NoError(t, err)
		require.Equal(t, decode(t, text), v)
	}
}

func TestTreeRefuses(t *testing.T) {
	t.Parallel()
	_, faults := expression.CompileTree(decode(t, `{"b": ["x", {"c": "{{ foo }}"}], "a": "{{ 1 + }}", "ok": "{{ 1 }}"}`), all)
	var found []string
	for _, fault := range faults {
		found = append(found, fault.Path+": "+fault.Err.Message)
	}
	require.Len(t, found, 2)
	require.Equal(t, "a: the expression ends too early", found[0])
	require.Contains(t, found[1], "b[1].c: “foo” does not exist")

	_, faults = expression.CompileTree("{{ foo }}", all)
	require.Len(t, faults, 1)
	require.Empty(t, faults[0].Path)

	tree, faults := expression.CompileTree(decode(t, `{"b": ["x", {"c": "{{ input.none + 1 }}"}]}`), all)
	require.Empty(t, faults)
	_, err := tree.Eval(environment(t))
	require.EqualError(t, err, "b[1].c: line 1, column 15: + needs two numbers or two texts, but input.none is null")

	nested := strings.Repeat("[", 50) + `"{{ input }}"` + strings.Repeat("]", 50)
	tree, faults = expression.CompileTree(decode(t, nested), all)
	require.Empty(t, faults)
	_, err = tree.Eval(&expression.Env{Input: decode(t, strings.Repeat("[", 50)+strings.Repeat("]", 50))})
	require.ErrorContains(t, err, "nested deeper than 64 levels")
}
