package execution_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/task"
	"tranche/internal/workflow"
)

// benchInput is a typical input of the benchmark's workflow, 300 bytes.
const benchInput = `{"borrowerId":"B-0001234","firstName":"Maria","lastName":"Santos-1234","email":"maria.santos.1234@example.com",` +
	`"income":3234.34,"debt":334.10,"amount":2234.00,"months":36,"score":684,"purpose":"home improvement",` +
	`"address":{"street":"12 Long Avenue","zip":"02234","city":"Springfield"}}`

// pureItem returns an item of the benchmark's workflow, and a service that runs it without
// a database.
func pureItem(tb testing.TB) (*execution.Service, execution.Item) {
	tb.Helper()
	text, err := os.ReadFile("../../tools/bench/workflow.json")
	require.NoError(tb, err)
	definition, err := exactjson.Decode(text)
	require.NoError(tb, err)
	members, _ := definition.(map[string]any)
	types := task.Types(task.Ports{})
	schema, _ := members["inputSchema"].(map[string]any)
	parsed, details := workflow.Parse(schema, members["tasks"], members["edges"], types)
	require.Empty(tb, details)
	plan, err := workflow.Compile(parsed, types)
	require.NoError(tb, err)
	s := execution.New(execution.Config{
		Runner: &engine.Runner{Clock: time.Now, Log: slog.New(slog.DiscardHandler)},
		Clock:  time.Now, Log: slog.New(slog.DiscardHandler),
	})
	return s, execution.Item{TenantID: uuid.New(), ID: uuid.Must(uuid.NewV7()), Plan: plan, Attempt: 1}
}

// runBenched decodes the input, runs the item and encodes its result.
func runBenched(tb testing.TB, s *execution.Service, item execution.Item) *execution.Finished {
	tb.Helper()
	input, err := exactjson.Decode([]byte(benchInput))
	if err != nil {
		tb.Fatal(err)
	}
	object, _ := input.(map[string]any)
	item.Input, item.BorrowerID = input, execution.BorrowerOf(object)
	f, err := s.RunPure(tb.Context(), item)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func TestRunPure(t *testing.T) {
	t.Parallel()
	s, item := pureItem(t)
	f := runBenched(t, s, item)
	require.JSONEq(t, `{"isSuccess":true,"statusCode":200,"output":{"tier":"tier12","price":17,"monthly":62.06,"burden":0.0214},
		"customOutput":null,"attachments":[],"notes":[],"notices":[],"errorMessage":null}`, string(f.ResultText))
	var state engine.State
	require.NoError(t, json.Unmarshal(f.State, &state))
	require.Equal(t, engine.StatusCompleted, state.Status)
	require.Len(t, state.Tasks, 3)

	item.Attempt = 2
	f = runBenched(t, s, item)
	require.Equal(t, 2, f.Attempt, "an item that is retried from its beginning")
	require.NoError(t, json.Unmarshal(f.State, &state))
	require.Equal(t, 2, state.Attempt)
}

// The size of a stored execution is most of its cost in PostgreSQL.
func TestPureSize(t *testing.T) {
	t.Parallel()
	s, item := pureItem(t)
	at := time.Date(2026, time.November, 21, 17, 5, 0, 0, time.UTC)
	s.Runner.Clock = func() time.Time { return at } // elapsed milliseconds are stored
	f := runBenched(t, s, item)
	require.LessOrEqual(t, len(f.ResultText), 190)
	require.LessOrEqual(t, len(f.State), 220)
}

// BenchmarkRunPure measures an execution without effects: decoding its input, running it
// and encoding its result, without HTTP, validation and database.
func BenchmarkRunPure(b *testing.B) {
	s, item := pureItem(b)
	b.ReportAllocs()
	for b.Loop() {
		runBenched(b, s, item)
	}
}

// BenchmarkCheckInput measures the validation of the same input.
func BenchmarkCheckInput(b *testing.B) {
	_, item := pureItem(b)
	input, err := exactjson.Decode([]byte(benchInput))
	require.NoError(b, err)
	object, _ := input.(map[string]any)
	b.ReportAllocs()
	for b.Loop() {
		if _, details := item.Plan.CheckInput(object); details != nil {
			b.Fatal(details)
		}
	}
}

// TestPureBudget limits the allocations of an execution without effects, including its
// input and its result. Garbage collection is a fifth of a batch's processor time. There are about 180; the rest is for the race
// detector, which empties pools.
func TestPureBudget(t *testing.T) {
	s, item := pureItem(t)
	input, err := exactjson.Decode([]byte(benchInput))
	require.NoError(t, err)
	object, _ := input.(map[string]any)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { runBenched(t, s, item) }), 215.0, "run")
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { item.Plan.CheckInput(object) }), 2.0, "validation")
}
