package expression_test

import (
	"errors"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"tranche/internal/exactjson"
	"tranche/internal/expression"
)

// slow is a limit on one compilation and evaluation that only a budget that
// does not work would reach.
const slow = 3 * time.Second

func FuzzCompile(f *testing.F) {
	for _, cases := range evaluated {
		for _, tc := range cases {
			f.Add(tc[0])
		}
	}
	for _, tc := range refused {
		f.Add(tc.source)
	}
	for _, tc := range failing {
		f.Add(tc.source)
	}
	for _, source := range greedy {
		f.Add(source)
	}
	env := environment(f)
	f.Fuzz(func(t *testing.T, source string) {
		started := time.Now()
		x, err := expression.Compile(source, all)
		if err != nil {
			requireOwn(t, err, source)
			return
		}
		v, err := x.Eval(env)
		require.Less(t, time.Since(started), slow, source)
		if err != nil {
			requireOwn(t, err, source)
			return
		}
		requireStorable(t, v)
		again, err := x.Eval(env)
		require.NoError(t, err)
		require.Equal(t, v, again, "evaluation is deterministic")
	})
}

func FuzzTemplate(f *testing.F) {
	f.Add(`Hello {{ input.name }}, {{ {"a": {"b": "}}"}}.a.b }} {{`)
	f.Add(`{{ "x" /* }} */ }}`)
	f.Add("{{ `a``}}` }}")
	f.Add(`{{{"a": 1}}}`)
	env := environment(f)
	f.Fuzz(func(t *testing.T, source string) {
		started := time.Now()
		template, err := expression.CompileTemplate(source, all)
		if err != nil {
			requireOwn(t, err, source)
			return
		}
		v, err := template.Eval(env)
		parts, partsErr := template.EvalParts(env)
		require.Less(t, time.Since(started), slow, source)
		if err != nil {
			requireOwn(t, err, source)
			return
		}
		if template.Whole() {
			requireStorable(t, v)
			return
		}
		require.NoError(t, partsErr)
		joined := ""
		for _, part := range parts {
			joined += part.Text
		}
		require.Equal(t, v, joined)
		if text, ok := template.Literal(); ok {
			require.Equal(t, source, text)
		}
	})
}

func requireOwn(t *testing.T, err error, source string) {
	t.Helper()
	var e *expression.Error
	require.True(t, errors.As(err, &e), source)
	require.NotEmpty(t, e.Message)
	require.Positive(t, e.Position.Line)
	require.Positive(t, e.Position.Column)
	if utf8.ValidString(source) {
		require.LessOrEqual(t, e.Position.Column, utf8.RuneCountInString(source)+1)
	}
}

// requireStorable checks that a result can be written and read back unchanged.
func requireStorable(t *testing.T, v any) {
	t.Helper()
	text, err := exactjson.Encode(v)
	require.NoError(t, err)
	again, err := exactjson.Decode(text)
	require.NoError(t, err)
	require.Equal(t, v, again)
}
