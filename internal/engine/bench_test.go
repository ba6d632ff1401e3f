package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"tranche/internal/workflow"
)

// BenchmarkThreePureTasks is the engine's own share of a synchronous execution
// of a transform, a decision table and an end: the programs do nothing.
func BenchmarkThreePureTasks(b *testing.B) {
	plan := (&world{still: true}).plan(b, "start>a a>b b>c", "a pure", `b pure {"reads":"{{ tasks.a.output }}"}`, `c pure {"reads":"{{ tasks.b.output }}"}`)
	benchmark(b, plan)
}

func BenchmarkFiftyPureTasks(b *testing.B) {
	benchmark(b, fifty(b))
}

// fifty is a graph of ten layers of five tasks, each layer reading the one before.
func fifty(b *testing.B) *workflow.Plan {
	b.Helper()
	var tasks []string
	var edges strings.Builder
	for layer := range 10 {
		for i := range 5 {
			id := fmt.Sprintf("t%d_%d", layer, i)
			config := "{}"
			if layer == 0 {
				edges.WriteString("start>" + id + " ")
			} else {
				config = fmt.Sprintf(`{"reads":"{{ tasks.t%d_%d.output }}"}`, layer-1, i)
				for j := range 5 {
					fmt.Fprintf(&edges, "t%d_%d>%s ", layer-1, j, id)
				}
			}
			tasks = append(tasks, id+" pure "+config)
		}
	}
	return (&world{still: true}).plan(b, edges.String(), tasks...)
}

func benchmark(b *testing.B, plan *workflow.Plan) {
	b.Helper()
	runner := newRunner()
	b.ReportAllocs()
	for b.Loop() {
		verdict, err := runner.Drive(b.Context(), &Run{Plan: plan, State: NewState(plan, "e1")}, nil)
		if err != nil || verdict.Outcome.Status != StatusCompleted {
			b.Fatal(err, verdict)
		}
	}
}

func BenchmarkStateJSON(b *testing.B) {
	plan := fifty(b)
	state := NewState(plan, "e1")
	if _, err := newRunner().Drive(b.Context(), &Run{Plan: plan, State: state}, nil); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		text, err := state.JSON()
		if err != nil {
			b.Fatal(err)
		}
		var read State
		if err := json.Unmarshal(text, &read); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(text)))
	}
}

// BenchmarkForEach is a for-each over 1,000 items of a task without effects.
func BenchmarkForEach(b *testing.B) {
	plan := (&world{still: true}).plan(b, "", each("pure", ""))
	runner := newRunner()
	input := items(1_000)
	b.ReportAllocs()
	for b.Loop() {
		verdict, err := runner.Drive(b.Context(), &Run{Plan: plan, State: NewState(plan, "e1"), Input: input}, nil)
		if err != nil || verdict.Outcome.Status != StatusCompleted {
			b.Fatal(err, verdict)
		}
	}
	b.ReportMetric(float64(b.N)*1_000/b.Elapsed().Seconds(), "runs/s")
}
