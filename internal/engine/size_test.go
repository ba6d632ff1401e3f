package engine

import (
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
	require.Equal(t, StateBytesMax/each, outcome.TasksCompleted, "what fits is kept")
	require.Equal(t, workflow.CodeTooLarge, state.Tasks[19].Error.Code)
}

// A plan learns what its executions hold at a time, not what comes in one after the other.
func TestPlansLearnTheirWeight(t *testing.T) {
	t.Parallel()
	const each = 1 << 20
	w := &world{other: gives(strings.Repeat("x", each))}
	three := w.plan(t, "start>a a>b b>c", "a pure", "b pure", "c pure")
	w.drive(t, three)
	require.InEpsilon(t, 3*each, three.Weight.Bytes(), 0.01)
	require.Same(t, three.Weight, three.Link(nil, nil).Weight)

	again := w.plan(t, "", `again loop {"max":50,"until":"index == 49","tasks":[{"id":"a","type":"pure"}]}`)
	w.drive(t, again)
	require.Less(t, again.Weight.Bytes(), int64(8*each))
}

func TestSizeIsThatOfTheJSON(t *testing.T) {
	t.Parallel()
	value := map[string]any{
		"name": strings.Repeat("n", 500), "amounts": []any{json.Number("1.10"), json.Number("300000.25"), nil, true},
		"nested": map[string]any{"list": []any{"a", "b", map[string]any{}}},
	}
	text, err := json.Marshal(value)
	require.NoError(t, err)
	require.InEpsilon(t, len(text), sizeOf(value), 0.1)
}
