package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/workflow"
)

func TestResultsAreBoundedTogether(t *testing.T) {
	t.Parallel()
	const each = 3 << 20
	w := &world{other: gives(strings.Repeat("x", each))}
	edges, tasks := "", []string{}
	for i := range 20 {
		edges += fmt.Sprintf(" start>t%02d", i)
		tasks = append(tasks, fmt.Sprintf(`t%02d pure {"onError":"continue"}`, i))
	}
	outcome, state := w.drive(t, w.plan(t, edges+" start>last", append(tasks, "last pure")...))
	require.Equal(t, StatusFailed, outcome.Status)
	require.Equal(t, 422, outcome.StatusCode)
	require.Contains(t, outcome.ErrorMessage, "16 MiB")
	require.Equal(t, stateBytesMax/each, outcome.TasksCompleted, "what fits is kept")
	require.Equal(t, workflow.CodeTooLarge, state.Tasks[19].Error.Code)
}

// A plan learns what its executions hold at a time, those that go on too, and not what
// comes in one after the other.
func TestPlanWeightFollowsExecutions(t *testing.T) {
	t.Parallel()
	const each = 15_000
	w := &world{other: gives(strings.Repeat("x", each))}
	learnt := func(plan *workflow.Plan, drive func()) int64 {
		for range 400 {
			drive()
		}
		return plan.Weight.Bytes()
	}
	three := w.plan(t, "start>a a>b b>c", "a pure", "b pure", "c pure")
	require.InEpsilon(t, 3*each, learnt(three, func() { w.drive(t, three) }), 0.01)
	require.Same(t, three.Weight, three.Link(nil, nil).Weight)

	again := w.plan(t, "", `again loop {"max":50,"until":"index == 49","tasks":[{"id":"a","type":"pure"}]}`)
	require.Less(t, learnt(again, func() { w.drive(t, again) }), int64(8*each))

	waits := w.plan(t, "start>a a>wait", "a pure", "wait wait")
	stored := func(context.Context, *State) error { return nil }
	require.InEpsilon(t, each, learnt(waits, func() {
		run := &Run{Plan: waits, State: NewState(waits, "e1")}
		verdict, err := newRunner().Drive(t.Context(), run, stored)
		require.NoError(t, err)
		require.Nil(t, verdict.Outcome)
		run.Signals = func(context.Context) (map[string]any, error) { return map[string]any{"wait": "came"}, nil }
		verdict, err = newRunner().Drive(t.Context(), run, stored)
		require.NoError(t, err)
		require.NotNil(t, verdict.Outcome)
	}), 0.01)
}

func TestSizeApproximatesJSON(t *testing.T) {
	t.Parallel()
	value := map[string]any{
		"name": strings.Repeat("n", 500), "amounts": []any{json.Number("1.10"), json.Number("300000.25"), nil, true},
		"nested": map[string]any{"list": []any{"a", "b", map[string]any{}}},
	}
	text, err := json.Marshal(value)
	require.NoError(t, err)
	require.InEpsilon(t, len(text), sizeOf(value), 0.1)
}
