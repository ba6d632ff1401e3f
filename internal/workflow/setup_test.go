package workflow_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/exactjson"
	"tranche/internal/expression"
	"tranche/internal/fault"
	"tranche/internal/workflow"
)

// sample is a task type that uses every way of reading a config.
type sample struct{ effect, waits bool }

type sampleProgram struct{ effect bool }

func (p sampleProgram) Effect() bool { return p.effect }

func (p sampleProgram) Run(context.Context, *workflow.Call) (workflow.Result, error) {
	return workflow.Result{}, nil
}

func (s sample) Compile(c *workflow.ConfigReader) workflow.Program {
	c.Choice("method", "GET", "POST")
	c.Text("label")
	c.Bool("flag", true)
	c.Int("limit", 5, 1, 10)
	c.Tree("output")
	c.Template("url")
	c.With(expression.Scope{Fields: true}).Tree("fields")
	for _, part := range c.Objects("parts") {
		part.Require("name")
		part.Text("name")
		part.Expression("expr")
	}
	if auth := c.Object("auth"); auth != nil {
		auth.Text("type")
	}
	for _, cell := range c.List("cells") {
		if source, ok := cell.(string); ok {
			c.ExpressionAt("cells[0]", source)
		}
	}
	if c.Has("source") {
		c.DataSource(c.Text("source"))
	}
	if s.effect {
		c.RetryByDefault(workflow.DefaultRetry(4))
	}
	if s.waits {
		c.Waits()
	}
	return sampleProgram{effect: s.effect}
}

// chooser is a task type with named edges.
type chooser struct{}

func (chooser) Compile(c *workflow.ConfigReader) workflow.Program {
	for _, chosen := range c.Objects("cases") {
		chosen.Expression("when")
		chosen.Goto("goto")
	}
	c.Otherwise("default")
	c.OnlyNamedEdges()
	return sampleProgram{}
}

// nest is a task type with a graph of its own.
type nest struct{}

func (nest) Compile(c *workflow.ConfigReader) workflow.Program {
	c.Graph(expression.Scope{Item: true})
	return sampleProgram{}
}

// signal is a task type that waits for a signal.
type signal struct{}

func (signal) Compile(c *workflow.ConfigReader) workflow.Program {
	c.Wait(&workflow.Wait{})
	return sampleProgram{}
}

// runner is a task type that runs a workflow.
type runner struct{}

func (runner) Compile(c *workflow.ConfigReader) workflow.Program {
	c.Workflow()
	return sampleProgram{}
}

func types() map[string]workflow.TaskType {
	return map[string]workflow.TaskType{
		"step": sample{}, "call": sample{effect: true}, "pause": sample{waits: true},
		"switch": chooser{}, "nest": nest{}, "signal": signal{}, "run": runner{},
	}
}

// decode reads a JSON text; tests write definitions as callers do.
func decode(tb testing.TB, text string) any {
	tb.Helper()
	v, err := exactjson.Decode([]byte(text))
	require.NoError(tb, err)
	return v
}

// parse reads {"inputSchema", "tasks", "edges"}.
func parse(tb testing.TB, text string) (workflow.Definition, []fault.Detail) {
	tb.Helper()
	body, ok := decode(tb, text).(map[string]any)
	require.True(tb, ok)
	return workflow.Parse(body["inputSchema"], body["tasks"], body["edges"], types())
}

func compile(tb testing.TB, text string, change ...func(*workflow.Definition)) (*workflow.Plan, error) {
	tb.Helper()
	def, details := parse(tb, text)
	require.Empty(tb, details)
	for _, c := range change {
		c(&def)
	}
	return workflow.Compile(def, types())
}

// lines writes details as "path: message", and the sub-code if there is one.
func lines(details []fault.Detail) []string {
	text := []string{}
	for _, d := range details {
		line := d.Field + ": " + d.Message
		if d.SubCode != "" {
			line += " " + string(d.SubCode)
		}
		text = append(text, line)
	}
	return text
}

func faults(tb testing.TB, err error) *fault.Error {
	tb.Helper()
	var f *fault.Error
	require.True(tb, errors.As(err, &f), "%v", err)
	require.ErrorIs(tb, err, fault.Unprocessable)
	return f
}
