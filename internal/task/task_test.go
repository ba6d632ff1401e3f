package task

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/egress"
	"tranche/internal/exactjson"
	"tranche/internal/expression"
	"tranche/internal/fault"
	"tranche/internal/workflow"
)

func decode(tb testing.TB, text string) any {
	tb.Helper()
	v, err := exactjson.Decode([]byte(text))
	require.NoError(tb, err, text)
	return v
}

func encode(tb testing.TB, v any) string {
	tb.Helper()
	text, err := exactjson.Encode(v)
	require.NoError(tb, err)
	return string(text)
}

// plan compiles tasks and edges, given as JSON arrays.
func plan(tb testing.TB, types map[string]workflow.TaskType, tasks, edges string) (*workflow.Plan, []fault.Detail) {
	tb.Helper()
	def, details := workflow.Parse(nil, decode(tb, tasks), decode(tb, edges), types)
	if len(details) > 0 {
		return nil, details
	}
	compiled, err := workflow.Compile(def, types)
	if err == nil {
		return compiled, compiled.Refusals
	}
	failed, ok := errors.AsType[*fault.Error](err)
	require.True(tb, ok)
	require.ErrorIs(tb, err, fault.Unprocessable)
	require.NotEmpty(tb, failed.Details)
	return nil, failed.Details
}

// compile compiles a workflow of one task, t, with a config given as JSON.
func compile(tb testing.TB, types map[string]workflow.TaskType, kind, config string) (workflow.Program, []fault.Detail) {
	tb.Helper()
	p, details := plan(tb, types, `[{"id":"t","type":"`+kind+`","config":`+config+`}]`, `[]`)
	if p == nil {
		return nil, details
	}
	return p.Graph.Tasks[0].Program, details
}

// program is compile of a config without faults.
func program(tb testing.TB, kind, config string) workflow.Program {
	tb.Helper()
	p, details := compile(tb, Types(Ports{HTTP: egress.New(nil)}), kind, config)
	require.Empty(tb, details, config)
	return p
}

func callWith(tb testing.TB, input string) *workflow.Call {
	tb.Helper()
	at := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	return &workflow.Call{
		Env:     &expression.Env{Input: decode(tb, input), Now: at, ExecutionID: "e1", Path: "t"},
		Attempt: 1, At: at,
	}
}

// run runs a program and gives its output as JSON.
func run(tb testing.TB, p workflow.Program, input string) (string, workflow.Result) {
	tb.Helper()
	result, err := p.Run(tb.Context(), callWith(tb, input))
	require.NoError(tb, err)
	return encode(tb, result.Output), result
}

// failing runs a program that must fail.
func failing(tb testing.TB, p workflow.Program, input string) *workflow.TaskError {
	tb.Helper()
	_, err := p.Run(tb.Context(), callWith(tb, input))
	failed, ok := errors.AsType[*workflow.TaskError](err)
	require.True(tb, ok, "%v", err)
	return failed
}

// refusal is a config that must not be published and what is said about it.
type refusal struct{ config, field, message string }

func requireRefusals(t *testing.T, kind string, cases []refusal) {
	t.Helper()
	for _, c := range cases {
		_, details := compile(t, Types(Ports{HTTP: egress.New(nil)}), kind, c.config)
		found := false
		for _, d := range details {
			found = found || d.Field == c.field && contains(d.Message, c.message)
		}
		require.True(t, found, "%s\nwant %s: %s\ngot  %v", c.config, c.field, c.message, details)
		for _, d := range details {
			require.NotContains(t, d.Message, "hunter2", "a fault never repeats a value")
		}
	}
}

func TestTypesAreThoseOfTheDefinitionLanguage(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"authorization-check", "decision-table", "delay", "end", "for-each", "http-request", "loop", "sub-workflow", "switch", "transform", "wait-for-signal"}, sortedNames(Types(Ports{})))
}

func TestUnknownMembersAreRefused(t *testing.T) {
	t.Parallel()
	for kind, config := range map[string]string{
		"http-request":    `{"url":"https://example.com/","other":1}`,
		"transform":       `{"fields":{},"auth":1}`,
		"switch":          `{"cases":[],"auth":1}`,
		"decision-table":  `{"inputs":[],"outputs":[{"name":"a"}],"rules":[],"auth":1}`,
		"end":             `{"auth":1}`,
		"for-each":        `{"items":"[]","tasks":[{"id":"u","type":"end"}],"edges":[],"auth":1}`,
		"loop":            `{"until":"true","tasks":[{"id":"u","type":"end"}],"edges":[],"auth":1}`,
		"delay":           `{"forMs":1,"auth":1}`,
		"wait-for-signal": `{"auth":1}`,
		"sub-workflow":    `{"alias":"a","version":"v1","auth":1}`,
	} {
		field := "tasks[0].config.auth"
		if kind == "http-request" {
			field = "tasks[0].config.other"
		}
		requireRefusals(t, kind, []refusal{{config, field, "is not a known property"}})
	}
}

// What waits makes its workflow asynchronous (contract 5.1).
func TestModesOfTypes(t *testing.T) {
	t.Parallel()
	const nested = `"tasks":[{"id":"u","type":"end"}]`
	for config, want := range map[string]workflow.Mode{
		`"delay","config":{"forMs":1}`:                                                                workflow.ModeAsync,
		`"wait-for-signal","config":{"timeoutMs":1}`:                                                  workflow.ModeAsync,
		`"loop","config":{"until":"true","delayMs":1,` + nested + `}`:                                 workflow.ModeAsync,
		`"loop","config":{"until":"true",` + nested + `}`:                                             workflow.ModeSync,
		`"for-each","config":{"items":"[]","tasks":[{"id":"u","type":"delay","config":{"forMs":1}}]}`: workflow.ModeAsync,
		`"for-each","config":{"items":"[]",` + nested + `}`:                                           workflow.ModeSync,
		`"end"`: workflow.ModeSync,
	} {
		p, details := plan(t, Types(Ports{}), `[{"id":"t","type":`+config+`}]`, `[]`)
		require.Empty(t, details, config)
		require.Equal(t, want, p.Mode, config)
	}
}

// A graph within a graph within a for-each still sees the item, and whatever came before.
func TestRootsOfNestedGraphs(t *testing.T) {
	t.Parallel()
	const tasks = `[{"id":"first","type":"end"},{"id":"second","type":"end"},{"id":"e","type":"for-each","config":{"items":"tasks.first.output","tasks":[
		{"id":"l","type":"loop","config":{"until":"item == index and last == tasks.second.output","tasks":[{"id":"u","type":"end","config":{"output":{"a":"{{ item }}{{ last }}{{ tasks.first.status }}"}}}]}}]}}]`
	_, details := plan(t, Types(Ports{}), tasks, `[{"source":"start","target":"first"},{"source":"first","target":"second"},{"source":"second","target":"e"}]`)
	require.Empty(t, details)
}

func TestDefaultsOfTypes(t *testing.T) {
	t.Parallel()
	p, details := plan(t, Types(Ports{}), `[{"id":"s","type":"switch","config":{"cases":[{"when":"true","goto":"e"}],"default":"l"}},
		{"id":"e","type":"for-each","config":{"items":"[]","workflow":{"alias":"a","version":"v1","input":{"i":"{{ item }}"}}}},
		{"id":"l","type":"loop","config":{"until":"true","tasks":[{"id":"u","type":"end"}]}}]`,
		`[{"source":"start","target":"s"},{"source":"s","target":"e"},{"source":"s","target":"l"}]`)
	require.Empty(t, details)
	tasks := p.Graph.Tasks
	require.Equal(t, []int{2}, tasks[0].OnSkip, "a switch that is passed over takes its default")
	require.Equal(t, 10, tasks[1].Nest.Concurrency)
	require.False(t, tasks[1].Nest.Continue)
	require.Equal(t, 100, tasks[2].Nest.IterationsMax)
}
