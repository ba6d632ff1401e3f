package task_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/task"
	"tranche/internal/workflow"
)

// BenchmarkThreeTasks is a synchronous execution without effects, less HTTP
// and database: a transform of five decimal expressions, a table of 20 rules and
// an end on a small input.
func BenchmarkThreeTasks(b *testing.B) {
	var rules []string
	for i := range 20 {
		rules = append(rules, fmt.Sprintf(`{"when":["[%d..%d)","< 0.%d"],"then":["\"band %d\"","input.amount * 0.9%d"]}`, i*50, i*50+50, 9-i%5, i, i%10))
	}
	tasks := `[{"id":"figures","type":"transform","config":{"fields":{
			"ratio":"{{ round(input.debt / input.income, 4) }}","rest":"{{ input.income - input.debt * 1.05 }}","rate":"{{ 0.049 + $.ratio / 10 }}",
			"fee":"{{ round(input.amount * 0.0125, 2) }}","yearly":"{{ round(input.amount * $.rate + $.fee * 12, 2) }}"}}},
		{"id":"decide","type":"decision-table","config":{"inputs":[{"field":"input.score"},{"field":"tasks.figures.output.ratio"}],
			"outputs":[{"name":"band"},{"name":"limit"}],"rules":[` + strings.Join(rules, ",") + `]}},
		{"id":"done","type":"end","config":{"output":{"band":"{{ tasks.decide.output.band }}","limit":"{{ tasks.decide.output.limit }}","yearly":"{{ tasks.figures.output.yearly }}"}}}]`
	edges := `[{"source":"start","target":"figures"},{"source":"figures","target":"decide"},{"source":"decide","target":"done"}]`
	read := func(text string) any {
		value, err := exactjson.Decode([]byte(text))
		require.NoError(b, err)
		return value
	}
	types := task.Types(task.Ports{})
	definition, details := workflow.Parse(nil, read(tasks), read(edges), types)
	require.Empty(b, details)
	plan, err := workflow.Compile(definition, types)
	require.NoError(b, err)
	input := read(`{"borrowerId":"B-1","score":712,"income":4250.75,"debt":1310.10,"amount":25000,"term":60}`)
	runner := engine.Runner{Clock: time.Now, Log: slog.New(slog.DiscardHandler)}
	b.ReportAllocs()
	for b.Loop() {
		verdict, err := runner.Drive(b.Context(), &engine.Run{Plan: plan, State: engine.NewState(plan, "e1"), Input: input}, nil)
		if err != nil || verdict.Outcome.Output["band"] != "band 14" {
			b.Fatal(err, verdict.Outcome)
		}
	}
}
