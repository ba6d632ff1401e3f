package engine

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tranche/internal/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// behaviour is what a task of a test does when it runs.
type behaviour func(ctx context.Context, call *workflow.Call) (workflow.Result, error)

// world gives the tasks of a test their behaviour by id, and notes their calls.
type world struct {
	tasks map[string]behaviour
	other behaviour // of tasks that have none of their own
	still bool      // gives nothing and notes nothing, for benchmarks
	mu    sync.Mutex
	calls []string // idempotency keys in the order of the calls
}

// worldType makes pure and effect tasks that behave as the world says.
type worldType struct {
	world  *world
	effect bool
}

func (w worldType) Compile(c *workflow.ConfigReader) workflow.Program {
	for _, chosen := range c.Objects("cases") {
		chosen.Goto("goto")
	}
	c.Otherwise("default")
	c.Tree("reads")
	c.DataSource(c.Text("source"))
	if c.Bool("waits", false) {
		c.Waits()
	}
	return worldProgram(w)
}

type worldProgram worldType

func (p worldProgram) Effect() bool { return p.effect }

func (p worldProgram) Run(ctx context.Context, call *workflow.Call) (workflow.Result, error) {
	if p.world.still {
		return workflow.Result{}, nil
	}
	p.world.mu.Lock()
	p.world.calls = append(p.world.calls, call.IdempotencyKey())
	run := p.world.tasks[call.Env.Path]
	p.world.mu.Unlock()
	if run == nil {
		run = p.world.other
	}
	if run == nil {
		return workflow.Result{Output: call.Env.Path}, nil
	}
	return run(ctx, call)
}

// plan compiles tasks written as "id type {config}" and edges as "a>b c>d".
func (w *world) plan(tb testing.TB, edges string, tasks ...string) *workflow.Plan {
	tb.Helper()
	return w.planOf(tb, map[string]any{}, edges, tasks...)
}

// planOf is plan with a schema of the input.
func (w *world) planOf(tb testing.TB, schema map[string]any, edges string, tasks ...string) *workflow.Plan {
	tb.Helper()
	def := workflow.Definition{InputSchema: schema}
	for _, text := range tasks {
		parts := append(strings.SplitN(text, " ", 3), "{}")
		var config map[string]any
		decoder := json.NewDecoder(strings.NewReader(parts[2]))
		decoder.UseNumber()
		require.NoError(tb, decoder.Decode(&config))
		def.Tasks = append(def.Tasks, workflow.TaskDefinition{ID: parts[0], Type: parts[1], Name: parts[0], Config: config})
	}
	for edge := range strings.FieldsSeq(edges) {
		source, target, _ := strings.Cut(edge, ">")
		def.Edges = append(def.Edges, workflow.EdgeDefinition{Source: source, Target: target})
	}
	plan, err := workflow.Compile(def, map[string]workflow.TaskType{
		"pure": worldType{world: w}, "effect": worldType{world: w, effect: true},
		"each": nestType{"each"}, "loop": nestType{"loop"}, "sub": nestType{"sub"}, "wait": nestType{"wait"},
	})
	require.NoError(tb, err)
	return plan
}

func newRunner() *Runner {
	return &Runner{Clock: time.Now, Log: slog.New(slog.DiscardHandler)}
}

// drive runs a fresh execution of the plan to its end.
func (w *world) drive(t *testing.T, plan *workflow.Plan) (*Outcome, *State) {
	t.Helper()
	state := NewState(plan, "e1")
	verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: state}, nil)
	require.NoError(t, err)
	require.NotNil(t, verdict.Outcome)
	return verdict.Outcome, state
}

// statuses writes the tasks' statuses by id.
func statuses(plan *workflow.Plan, state *State) map[string]Status {
	byID := map[string]Status{}
	for i, task := range plan.Graph.Tasks {
		byID[task.ID] = state.Tasks[i].Status
	}
	return byID
}

func gives(output any) behaviour {
	return func(context.Context, *workflow.Call) (workflow.Result, error) {
		return workflow.Result{Output: output}, nil
	}
}

func takes(targets ...string) behaviour {
	return func(context.Context, *workflow.Call) (workflow.Result, error) {
		return workflow.Result{Output: "chosen", Targets: append([]string{}, targets...)}, nil
	}
}

func fails(err error) behaviour {
	return func(context.Context, *workflow.Call) (workflow.Result, error) { return workflow.Result{}, err }
}

func ends(end workflow.End, output map[string]any) behaviour {
	return func(context.Context, *workflow.Call) (workflow.Result, error) {
		return workflow.Result{Output: output, End: &end}, nil
	}
}

func own(code string) *workflow.TaskError {
	return &workflow.TaskError{Code: code, Message: "it went wrong"}
}

func external(status int, retryAfter time.Duration) *workflow.TaskError {
	return &workflow.TaskError{
		Code: workflow.CodeExternalService, Message: "the service failed",
		StatusCode: status, Retryable: true, RetryAfter: retryAfter,
	}
}

func TestGraph(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		edges    string
		tasks    []string
		world    map[string]behaviour
		statuses map[string]Status
		output   map[string]any
	}{
		"one task": {
			tasks: []string{"a pure"}, statuses: map[string]Status{"a": StatusCompleted},
			output: map[string]any{"a": "a"},
		},
		"one object": {
			edges: "start>a a>b", tasks: []string{"a pure", "b effect"},
			world:    map[string]behaviour{"b": gives(map[string]any{"x": json.Number("1.10")})},
			statuses: map[string]Status{"a": StatusCompleted, "b": StatusCompleted},
			output:   map[string]any{"x": json.Number("1.10")},
		},
		"branches in parallel and a join": {
			edges: "start>a start>b a>c b>c", tasks: []string{"c pure", "a effect", "b effect"},
			statuses: map[string]Status{"a": StatusCompleted, "b": StatusCompleted, "c": StatusCompleted},
			output:   map[string]any{"c": "c"},
		},
		"a join tolerates a skipped branch": {
			edges: "start>s s>a s>b a>j b>j", tasks: []string{`s pure {"cases":[{"goto":"a"},{"goto":"b"}]}`, "a pure", "b pure", "j pure"},
			world:    map[string]behaviour{"s": takes("b")},
			statuses: map[string]Status{"s": StatusCompleted, "a": StatusSkipped, "b": StatusCompleted, "j": StatusCompleted},
			output:   map[string]any{"j": "j"},
		},
		"no edge taken skips the rest": {
			edges: "start>s s>a a>b", tasks: []string{"s pure", "a pure", "b pure"},
			world:    map[string]behaviour{"s": takes()},
			statuses: map[string]Status{"s": StatusCompleted, "a": StatusSkipped, "b": StatusSkipped},
			output:   map[string]any{},
		},
		"several results, skipped ones absent": {
			edges: "start>s s>a s>b s>c", tasks: []string{"s pure", "a pure", "b pure", `c effect {"onError":"continue"}`},
			world:    map[string]behaviour{"s": takes("a", "c"), "a": gives(map[string]any{"x": true}), "c": fails(own("X"))},
			statuses: map[string]Status{"s": StatusCompleted, "a": StatusCompleted, "b": StatusSkipped, "c": StatusFailed},
			output:   map[string]any{"a": map[string]any{"x": true}, "c": nil},
		},
		"when passes over and takes the edges": {
			edges: "start>a a>b", tasks: []string{`a effect {"when":"1 > 2"}`, `b pure {"when":"tasks.a.status == \"skipped\" && tasks.a.output == null"}`},
			statuses: map[string]Status{"a": StatusSkipped, "b": StatusCompleted},
			output:   map[string]any{"b": "b"},
		},
		"a passed-over switch takes its default only": {
			edges: "start>s s>a s>b s>c", tasks: []string{`s pure {"when":"false","cases":[{"goto":"a"}],"default":"b","onError":{"goto":"c"}}`, "a pure", "b pure", "c pure"},
			statuses: map[string]Status{"s": StatusSkipped, "a": StatusSkipped, "b": StatusCompleted, "c": StatusSkipped},
			output:   map[string]any{"b": "b"},
		},
		"goto on failure takes that edge only": {
			edges: "start>a a>ok a>bad", tasks: []string{`a effect {"onError":{"goto":"bad"}}`, "ok pure", "bad pure"},
			world:    map[string]behaviour{"a": fails(own("X"))},
			statuses: map[string]Status{"a": StatusFailed, "ok": StatusSkipped, "bad": StatusCompleted},
			output:   map[string]any{"bad": "bad"},
		},
		"on success the goto edge is not taken": {
			edges: "start>a a>ok a>bad", tasks: []string{`a effect {"onError":{"goto":"bad"}}`, "ok pure", "bad pure"},
			statuses: map[string]Status{"a": StatusCompleted, "ok": StatusCompleted, "bad": StatusSkipped},
			output:   map[string]any{"ok": "ok"},
		},
		"an entry with further edges waits for them": {
			edges: "start>a start>b a>b", tasks: []string{"b pure", "a effect"},
			world:    map[string]behaviour{"a": takes()},
			statuses: map[string]Status{"a": StatusCompleted, "b": StatusCompleted},
			output:   map[string]any{"b": "b"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{tasks: test.world}
			plan := w.plan(t, test.edges, test.tasks...)
			outcome, state := w.drive(t, plan)
			require.Equal(t, StatusCompleted, outcome.Status)
			require.Equal(t, 200, outcome.StatusCode)
			require.Equal(t, test.statuses, statuses(plan, state))
			require.Equal(t, test.output, outcome.Output)
		})
	}
}

// TestCompetition is contract 4.5: without effects the earlier in tasks wins,
// whatever the lengths of the branches.
func TestCompetition(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		edges   string
		tasks   []string
		world   map[string]behaviour
		status  Status
		message string
	}{
		"the earlier end": {
			edges: "start>late start>a a>b b>early", tasks: []string{"early pure", "a pure", "b pure", "late pure"},
			world: map[string]behaviour{
				"early": ends(workflow.End{}, nil), "late": ends(workflow.End{Failed: true, ErrorMessage: "late"}, nil),
			},
			status: StatusCompleted,
		},
		"an earlier failure": {
			edges: "start>a start>end", tasks: []string{"a pure", "end pure"},
			world:  map[string]behaviour{"a": fails(own("X")), "end": ends(workflow.End{}, nil)},
			status: StatusFailed, message: "task a failed: it went wrong",
		},
		"an effect is not begun beside an end": {
			edges: "start>a start>end", tasks: []string{"a effect", "end pure"},
			world:  map[string]behaviour{"a": fails(own("X")), "end": ends(workflow.End{}, nil)},
			status: StatusCompleted,
		},
		"what follows a failure does not run": {
			edges: "start>a start>b a>j b>j", tasks: []string{"j pure", "a pure", "b pure"},
			world:  map[string]behaviour{"a": fails(own("X")), "j": ends(workflow.End{}, nil)},
			status: StatusFailed, message: "task a failed: it went wrong",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{tasks: test.world}
			outcome, _ := w.drive(t, w.plan(t, test.edges, test.tasks...))
			require.Equal(t, test.status, outcome.Status)
			require.Equal(t, test.message, outcome.ErrorMessage)
			require.NotContains(t, w.calls, "e1/a effect")
		})
	}
}
