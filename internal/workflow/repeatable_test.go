package workflow_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/workflow"
)

// A plan is repeatable unless one of these reasons makes the first calls of its
// executions depend on when they are made.
func TestRepeatable(t *testing.T) {
	t.Parallel()
	planOf := func(tasks string) *workflow.Plan {
		t.Helper()
		plan, err := compile(t, `{"tasks":[`+tasks+`]}`)
		require.NoError(t, err)
		return plan
	}
	call := func(config string) string { return `{"id": "a", "type": "call", "config": {` + config + `}}` }
	running := func(version string) string {
		return `{"id": "a", "type": "run", "config": {"alias": "sub", "version": "` + version + `"}}`
	}
	plain, clocked := planOf(call(``)), planOf(call(`"url": "{{ now() }}"`))
	subs := func(version string, sub *workflow.Plan) map[workflow.Ref]*workflow.Plan {
		return map[workflow.Ref]*workflow.Plan{{Alias: "sub", Version: version}: sub}
	}
	for name, c := range map[string]struct {
		plan       *workflow.Plan
		repeatable bool
	}{
		"a call":                       {plain, true},
		"what follows from the id":     {planOf(call(`"url": "{{ uuid() }} {{ execution.createdAt }} {{ execution.attempt }}"`)), true},
		"a date of the input":          {planOf(call(`"url": "{{ format(date(input.day), 'YYYY') }}"`)), true},
		"a fixed version":              {planOf(running("v1")).Link(subs("v1", plain), map[string]int{}), true},
		"the time in a text":           {clocked, false},
		"the time in an expression":    {planOf(call(`"parts": [{"name": "n", "expr": "let t = date(now()); t"}]`)), false},
		"the time in a tree":           {planOf(call(`"output": {"list": ["x", {"at": "{{ now() }}"}]}`)), false},
		"the time in a condition":      {planOf(call(`"when": "len(filter(input.days, date(#) < now())) > 0"`)), false},
		"the time in a nested graph":   {planOf(`{"id": "n", "type": "nest", "config": {"tasks": [{"id": "b", "type": "call", "config": {"url": "{{ now() }}"}}]}}`), false},
		"a wait":                       {planOf(`{"id": "a", "type": "pause", "config": {}}`), false},
		"the latest version":           {planOf(running("latest")).Link(subs("latest", plain), map[string]int{"sub": 1}), false},
		"a workflow that is not there": {planOf(running("v1")).Link(nil, map[string]int{}), false},
		"the time in one that it runs": {planOf(running("v1")).Link(subs("v1", clocked), map[string]int{}), false},
		"one that runs the latest":     {planOf(running("v1")).Link(subs("v1", planOf(running("latest"))), map[string]int{"sub": 1}), false},
		"one that waits":               {planOf(running("v1")).Link(subs("v1", planOf(`{"id": "a", "type": "pause", "config": {}}`)), map[string]int{}), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.repeatable, c.plan.Repeatable())
		})
	}
}
