package task

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/egress"
	"tranche/internal/workflow"
)

// example is a definition of docs/workflows.md, and what it gives for an input.
type example struct{ definition, input, result string }

func examples(t *testing.T) []example {
	t.Helper()
	text, err := os.ReadFile("../../docs/workflows.md")
	require.NoError(t, err)
	var all []example
	for _, block := range strings.Split("\n"+string(text), "\n```json")[1:] {
		kind, rest, found := strings.Cut(block, "\n")
		require.True(t, found)
		content, _, closed := strings.Cut(rest, "\n```")
		require.True(t, closed, block)
		switch strings.TrimSpace(kind) {
		case "":
			all = append(all, example{definition: content})
		case "input":
			all[len(all)-1].input = content
		case "result":
			all[len(all)-1].result = content
		default:
			t.Fatalf("an example of unknown kind %q", kind)
		}
	}
	return all
}

func TestExamplesOfTheReference(t *testing.T) {
	t.Parallel()
	types := Types(Ports{HTTP: egress.New(nil)})
	used := map[string]bool{}
	for _, e := range examples(t) {
		definition, isObject := decode(t, e.definition).(map[string]any)
		require.True(t, isObject)
		tasks, edges := any([]any{definition}), any([]any{})
		if definition["tasks"] != nil {
			tasks, edges = definition["tasks"], definition["edges"]
		}
		p, details := plan(t, types, encode(t, tasks), encode(t, edges))
		require.Empty(t, details, e.definition)
		require.Empty(t, p.Warnings, e.definition)
		for _, task := range p.Graph.Tasks {
			used[task.Type] = true
		}
		if e.result == "" {
			continue
		}
		output, result := run(t, p.Graph.Tasks[0].Program, e.input)
		require.Equal(t, encode(t, decode(t, e.result)), output, e.definition)
		if p.Graph.Tasks[0].Type == "end" {
			require.Equal(t, []string{"approved", "web"}, result.End.Tags)
			require.Equal(t, []workflow.Notice{{Code: "LIMIT", Level: workflow.LevelWarning, Message: "close to the limit", Source: "bureau"}}, result.End.Notices)
		}
	}
	for kind := range types {
		require.True(t, used[kind], "no example of %s", kind)
	}
}
