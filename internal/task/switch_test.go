package task

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/workflow"
)

// switchPlan compiles a switch t with edges to a, b and c.
func switchPlan(t *testing.T, config string) (workflow.Program, []string) {
	t.Helper()
	tasks := `[{"id":"t","type":"switch","config":` + config + `}`
	edges := `[{"source":"start","target":"t"}`
	for _, id := range []string{"a", "b", "c"} {
		tasks += `,{"id":"` + id + `","type":"transform","config":{"fields":{}}}`
		edges += `,{"source":"t","target":"` + id + `"}`
	}
	p, details := plan(t, Types(Ports{}), tasks+"]", edges+"]")
	if p == nil {
		var texts []string
		for _, d := range details {
			texts = append(texts, d.Field+": "+d.Message)
		}
		return nil, texts
	}
	return p.Graph.Tasks[0].Program, nil
}

func TestSwitch(t *testing.T) {
	t.Parallel()
	cases := `"cases":[{"when":"input.n > 10","goto":"a"},{"when":"input.n > 5","goto":"b"}]`
	for _, c := range []struct {
		config, input string
		want          []string
	}{
		{`{` + cases + `,"default":"c"}`, `{"n":11}`, []string{"a"}},
		{`{` + cases + `,"default":"c"}`, `{"n":6}`, []string{"b"}},
		{`{` + cases + `,"default":"c"}`, `{"n":1}`, []string{"c"}},
		{`{` + cases + `,"default":"c","mode":"all"}`, `{"n":11}`, []string{"a", "b"}},
		{`{` + cases + `,"default":"c","mode":"all"}`, `{"n":1}`, []string{"c"}},
		{`{"cases":[{"when":"input.n > 10","goto":"a"},{"when":"false","goto":"b"},{"when":"false","goto":"c"}],"default":null}`, `{"n":1}`, []string{}},
	} {
		p, faults := switchPlan(t, c.config)
		require.Empty(t, faults)
		require.False(t, p.Effect())
		_, result := run(t, p, c.input)
		require.Equal(t, c.want, result.Targets)
		require.NotNil(t, result.Targets, "an empty list takes no edge, nil would take all")
	}
}

func TestSwitchFailure(t *testing.T) {
	t.Parallel()
	p, faults := switchPlan(t, `{"cases":[{"when":"true","goto":"a"},{"when":"input.n","goto":"b"}],"default":"c","mode":"all"}`)
	require.Empty(t, faults)
	failed := failing(t, p, `{"n":1}`)
	require.Equal(t, workflow.CodeExpression, failed.Code)
	require.Contains(t, failed.Message, "cases[1].when")
}

func TestSwitchRefusals(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		`{}`: "tasks[0].config.cases: is required",
		`{"cases":[{"when":"true","goto":"a"}],"default":"b"}`:                            "edges[3]: must be the target of a case",
		`{"cases":[{"when":"true","goto":"nope"}],"default":"b"}`:                         "tasks[0].config.cases[0].goto: ",
		`{"cases":[{"goto":"a"}]}`:                                                        "tasks[0].config.cases[0].when: is required",
		`{"cases":[{"when":"true"}]}`:                                                     "tasks[0].config.cases[0].goto: is required",
		`{"cases":[{"when":"1 +","goto":"a"}]}`:                                           "tasks[0].config.cases[0].when: ",
		`{"cases":[{"when":true,"goto":"a"}]}`:                                            "tasks[0].config.cases[0].when: must be",
		`{"cases":[{"when":"true","goto":"a","else":"b"}]}`:                               "tasks[0].config.cases[0].else: ",
		`{"cases":[{"when":"true","goto":"a"}],"mode":"some"}`:                            "tasks[0].config.mode: must be one of first, all",
		`{"cases":[{"when":"$ > 1","goto":"a"}]}`:                                         "tasks[0].config.cases[0].when: ",
		`{"cases":[{"when":"true","goto":"a"},{"when":"true","goto":"b"}],"default":"x"}`: "tasks[0].config.default: ",
	} {
		_, faults := switchPlan(t, config)
		found := false
		for _, f := range faults {
			found = found || contains(f, want)
		}
		require.True(t, found, "%s\nwant %s\ngot  %v", config, want, faults)
	}
}
