package engine

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/expression"
	"tranche/internal/fault"
	"tranche/internal/workflow"
)

func TestOutcomeOfFailure(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		behaviour behaviour
		want      Outcome
	}{
		"own code":   {fails(own("NO_RULE")), Outcome{StatusCode: 422, ErrorMessage: "task a failed: it went wrong"}},
		"expression": {fails(&expression.Error{Message: "cannot add null", Position: expression.Position{Line: 1, Column: 2}}), Outcome{StatusCode: 422, ErrorMessage: "task a failed: line 1, column 2: cannot add null"}},
		"external":   {fails(external(0, 0)), Outcome{StatusCode: 502, SubCode: fault.ExternalServiceError, ErrorMessage: "task a failed: the service failed"}},
		"unexpected": {fails(errors.New("password=secret")), Outcome{StatusCode: 500, ErrorMessage: "task a failed: an unexpected error occurred"}},
		"panic":      {func(context.Context, *workflow.Call) (workflow.Result, error) { panic("password=secret") }, Outcome{StatusCode: 500, ErrorMessage: "task a failed: an unexpected error occurred"}},
	}
	for name, test := range tests {
		for _, kind := range []string{"pure", "effect"} {
			t.Run(name+" in "+kind, func(t *testing.T) {
				t.Parallel()
				w := &world{tasks: map[string]behaviour{"a": test.behaviour}}
				outcome, _ := w.drive(t, w.plan(t, "", "a "+kind))
				want := test.want
				want.Status, want.Output, want.TasksFailed = StatusFailed, map[string]any{}, 1
				require.Equal(t, &want, outcome)
			})
		}
	}
}

func TestOutcomeOfEnd(t *testing.T) {
	t.Parallel()
	end := workflow.End{
		StatusCode: 201, CustomOutput: json.Number("7"), Notes: []string{"n"}, Tags: []string{"t"}, ErrorMessage: "m",
		Notices:     []workflow.Notice{{Code: "C", Level: workflow.LevelInfo, Message: "told"}},
		Attachments: []workflow.Attachment{{FileName: "f.pdf", Metadata: map[string]any{"k": "v"}}},
	}
	w := &world{tasks: map[string]behaviour{
		"a":   fails(external(503, 0)),
		"b":   fails(own("X")),
		"end": ends(end, map[string]any{"decision": "approve"}),
	}}
	plan := w.plan(t, "start>a start>b b>c a>end c>end",
		`a effect {"onError":"continue","source":"bureau"}`, `b pure {"onError":{"goto":"c"},"source":"other"}`, "c pure", "end pure")
	outcome, state := w.drive(t, plan)
	require.Len(t, outcome.Notices, 3)
	for i := range outcome.Notices {
		require.False(t, outcome.Notices[i].CreatedAt.IsZero())
		outcome.Notices[i].CreatedAt = outcome.Notices[0].CreatedAt
	}
	at := outcome.Notices[0].CreatedAt
	require.Equal(t, &Outcome{
		Status: StatusCompleted, StatusCode: 201, Output: map[string]any{"decision": "approve"},
		CustomOutput: json.Number("7"), Notes: []string{"n"}, Tags: []string{"t"}, ErrorMessage: "m",
		Attachments: end.Attachments, TasksCompleted: 2, TasksFailed: 2, SourceFailed: true,
		Notices: []workflow.Notice{
			{Code: workflow.CodeExternalService, Level: workflow.LevelWarning, Message: "the service failed", TaskID: "a", Source: "bureau", CreatedAt: at},
			{Code: "X", Level: workflow.LevelWarning, Message: "it went wrong", TaskID: "b", Source: "other", CreatedAt: at},
			{Code: "C", Level: workflow.LevelInfo, Message: "told", TaskID: "end", CreatedAt: at},
		},
	}, outcome)
	require.Empty(t, end.Notices[0].TaskID, "the program's own notices were changed")
	require.Equal(t, StatusCompleted, state.Status)

	for name, test := range map[string]struct {
		end    workflow.End
		status Status
		code   int
	}{
		"completed": {workflow.End{}, StatusCompleted, 200},
		"failed":    {workflow.End{Failed: true}, StatusFailed, 422},
		"chosen":    {workflow.End{Failed: true, StatusCode: 409}, StatusFailed, 409},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{tasks: map[string]behaviour{"end": ends(test.end, nil)}}
			outcome, _ := w.drive(t, w.plan(t, "", "end pure"))
			require.Equal(t, test.status, outcome.Status)
			require.Equal(t, test.code, outcome.StatusCode)
			require.Equal(t, map[string]any{}, outcome.Output)
		})
	}
}

func TestSourceFailedNeedsContinue(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]bool{
		`{"source":"s","onError":"continue"}`:      true,
		`{"source":"s","onError":{"goto":"next"}}`: false,
		`{"onError":"continue"}`:                   false,
	} {
		w := &world{tasks: map[string]behaviour{"a": fails(own("X"))}}
		outcome, _ := w.drive(t, w.plan(t, "start>a a>next", "a effect "+config, "next pure"))
		require.Equal(t, want, outcome.SourceFailed, config)
	}
}

// TestExpressionEnvironment reads the values of other tasks, failed and skipped
// ones among them, and the recorded time.
func TestExpressionEnvironment(t *testing.T) {
	t.Parallel()
	var seen *expression.Env
	w := &world{tasks: map[string]behaviour{
		"a": gives(map[string]any{"score": json.Number("650.0")}),
		"b": fails(external(404, 0)),
		"c": func(_ context.Context, call *workflow.Call) (workflow.Result, error) {
			env := *call.Env
			seen = &env
			require.Equal(t, 1, call.Attempt)
			require.Equal(t, "c", call.Env.Path)
			require.False(t, call.At.Before(env.Now), "the try begins when its task has begun")
			return workflow.Result{}, nil
		},
	}}
	plan := w.plan(t, "start>a start>b a>c b>c", "a pure", `b effect {"onError":"continue"}`, `c pure {"when":"tasks.a.output.score >= 650 && tasks.b.status == \"failed\"","reads":"{{ tasks.a.output }}"}`)
	runner := newRunner()
	run := &Run{
		Plan: plan, State: NewState(plan, "e1"), Input: map[string]any{"x": "y"}, Custom: "c",
		Execution: &expression.Execution{ID: "e1"}, CallbackURL: func(path string) (string, error) { return path, nil },
	}
	_, err := runner.Drive(t.Context(), run, nil)
	require.NoError(t, err)
	require.Equal(t, run.Input, seen.Input)
	require.Equal(t, run.Custom, seen.Custom)
	require.Equal(t, run.Execution, seen.Execution)
	require.Equal(t, run.State.Tasks[2].StartedAt, seen.Now)
	require.Equal(t, expression.Task{Output: map[string]any{"score": json.Number("650.0")}, Status: "completed"}, seen.Tasks["a"])
	require.Equal(t, expression.Task{Status: "failed", Error: external(404, 0).Value()}, seen.Tasks["b"])
	_, err = seen.CallbackURL("c")
	require.ErrorContains(t, err, "no wait-for-signal has that id")
}
