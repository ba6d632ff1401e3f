package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/exactjson"
	"tranche/internal/expression"
	"tranche/internal/workflow"
)

// nestType makes the tasks that the engine carries out itself.
type nestType struct{ kind string }

func (n nestType) Compile(c *workflow.ConfigReader) workflow.Program {
	switch n.kind {
	case "each":
		inner := expression.Scope{Item: true}
		nest := &workflow.Nest{
			Kind: workflow.NestEach, Items: c.Expression("items"),
			Concurrency: c.Int("concurrency", 10, 1, 100), Continue: c.Bool("continue", false),
		}
		if reference := c.Object("workflow"); reference != nil {
			nest.Ref, nest.Input = reference.Workflow(), reference.With(inner).Tree("input")
		} else {
			nest.Graph = c.Graph(inner)
		}
		c.Nest(nest)
	case "loop":
		inner := expression.Scope{Last: true}
		c.Nest(&workflow.Nest{
			Kind: workflow.NestLoop, Until: c.With(inner).Expression("until"), IterationsMax: c.Int("max", 10, 1, 10_000),
			Delay: time.Duration(c.Int("delayMs", 0, 0, 1_000_000)) * time.Millisecond, Graph: c.Graph(inner),
		})
		c.Waits()
	case "sub":
		c.Nest(&workflow.Nest{Kind: workflow.NestOnce, Ref: c.Workflow(), Input: c.Tree("input")})
	case "wait":
		c.Wait(&workflow.Wait{Timeout: time.Duration(c.Int("timeoutMs", 0, 1, 1_000_000_000)) * time.Millisecond, Schema: c.Schema("schema")})
	}
	return worldProgram{world: &world{still: true}}
}

// item gives what a task in a nested graph sees, and fails where at has an error.
func item(at map[string]any) behaviour {
	return func(_ context.Context, call *workflow.Call) (workflow.Result, error) {
		if err, fails := at[call.Env.Path].(error); fails {
			return workflow.Result{}, err
		}
		return workflow.Result{Output: map[string]any{"item": call.Env.Item, "index": call.Env.Index, "last": call.Env.Last}}, nil
	}
}

// each is a for-each over the input's items with one task in its graph.
func each(kind, extra string) string {
	return `each each {"items":"input.items"` + extra + `,"tasks":[{"id":"score","type":"` + kind + `"}]}`
}

func (w *world) runNested(t *testing.T, plan *workflow.Plan, input map[string]any) (*Outcome, *State) {
	t.Helper()
	state := NewState(plan, "e1")
	verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: state, Input: input}, nil)
	require.NoError(t, err)
	require.NotNil(t, verdict.Outcome)
	return verdict.Outcome, state
}

func items(n int) map[string]any {
	list := make([]any, n)
	for i := range list {
		list[i] = json.Number(fmt.Sprint(10 * i))
	}
	return map[string]any{"items": list}
}

func TestForEach(t *testing.T) {
	t.Parallel()
	one := func(i int) any {
		return map[string]any{"item": json.Number(fmt.Sprint(10 * i)), "index": i, "last": nil}
	}
	failed := map[string]any{"error": map[string]any{"code": "X", "message": "each[1].score: it went wrong", "statusCode": nil}}
	for name, test := range map[string]struct {
		task    string
		items   int
		fails   string
		output  any
		calls   []string
		message string
	}{
		"of nothing":        {each("pure", ""), 0, "", []any{}, nil, ""},
		"without effects":   {each("pure", ""), 3, "", []any{one(0), one(1), one(2)}, []string{"e1/each[0].score", "e1/each[1].score", "e1/each[2].score"}, ""},
		"one at a time":     {each("effect", `,"concurrency":1`), 3, "", []any{one(0), one(1), one(2)}, []string{"e1/each[0].score", "e1/each[1].score", "e1/each[2].score"}, ""},
		"a failure":         {each("pure", ""), 3, "each[1].score", nil, []string{"e1/each[0].score", "e1/each[1].score"}, "task each failed: each[1].score: it went wrong"},
		"goes on after one": {each("pure", `,"continue":true`), 3, "each[1].score", []any{one(0), failed, one(2)}, []string{"e1/each[0].score", "e1/each[1].score", "e1/each[2].score"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := item(map[string]any{test.fails: own("X")})
			w := &world{tasks: map[string]behaviour{}, other: run}
			outcome, state := w.runNested(t, w.plan(t, "", test.task), items(test.items))
			require.Equal(t, test.message, outcome.ErrorMessage)
			require.Equal(t, test.output, state.Tasks[0].Output)
			require.Equal(t, test.calls, w.calls)
		})
	}
}

func TestForEachItemsMustBeList(t *testing.T) {
	t.Parallel()
	w := &world{}
	outcome, _ := w.runNested(t, w.plan(t, "", each("pure", "")), map[string]any{"items": "x"})
	require.Equal(t, "task each failed: items: line 1, column 1: a list is needed here, but it is text", outcome.ErrorMessage)
	outcome, _ = w.runNested(t, w.plan(t, "", `each each {"items":"input.items + 1","tasks":[{"id":"in","type":"pure"}]}`), map[string]any{})
	require.Equal(t, "task each failed: items: line 1, column 13: + needs two numbers or two texts, but input.items is null", outcome.ErrorMessage)
	outcome, _ = w.runNested(t, w.plan(t, "", `a pure {"when":"input.items"}`), map[string]any{})
	require.Equal(t, "task a failed: when: line 1, column 1: a condition must be true or false, but it is null", outcome.ErrorMessage)
	outcome, _ = w.runNested(t, w.plan(t, "", each("pure", "")), items(workflow.ItemsMax+1))
	require.Equal(t, "task each failed: items must have at most 10000 items; it has 10001", outcome.ErrorMessage)
	outcome, _ = w.runNested(t, w.plan(t, "", each("pure", "")), items(workflow.ItemsMax))
	require.Equal(t, StatusCompleted, outcome.Status)
	require.Equal(t, workflow.ItemsMax+1, outcome.TasksCompleted)
}

func TestRunsAreBounded(t *testing.T) {
	t.Parallel()
	plan := (&world{still: true}).plan(t, "", each("pure", ""))
	state := NewState(plan, "e1")
	state.Runs = runsMax - 2
	verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: state, Input: items(3)}, nil)
	require.NoError(t, err)
	require.Equal(t, "task each failed: an execution has at most 100000 nested runs", verdict.Outcome.ErrorMessage)
}

func TestConcurrencyBoundsRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		w := &world{other: func(context.Context, *workflow.Call) (workflow.Result, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return workflow.Result{}, nil
		}}
		begin := time.Now()
		w.runNested(t, w.plan(t, "", each("effect", `,"concurrency":3`)), items(7))
		require.Equal(t, 3, most)
		require.Equal(t, 3*time.Second, time.Since(begin))
	})
}

// The place of a run that has ended is free, whichever it is.
func TestForEachItemStartsWhenSlotIsFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{other: sleeps(time.Second), tasks: map[string]behaviour{"each[0].score": sleeps(3 * time.Second)}}
		begin := time.Now()
		_, state := w.runNested(t, w.plan(t, "", each("effect", `,"concurrency":2`)), items(4))
		require.Equal(t, 3*time.Second, time.Since(begin))
		for i, run := range state.Tasks[0].Output.([]any) { //nolint:forcetypeassert // the test's own shape
			require.Equal(t, map[string]any{"score": fmt.Sprintf("each[%d].score", i)}, run)
		}
	})
}

func TestLoop(t *testing.T) {
	t.Parallel()
	const graph = `,"tasks":[{"id":"ask","type":"effect"}]}`
	for name, test := range map[string]struct {
		task, message string
		took          time.Duration
		calls         int
	}{
		"until it holds":   {`poll loop {"until":"last.index == 2"` + graph, "", 0, 3},
		"sees the index":   {`poll loop {"until":"index == 1"` + graph, "", 0, 2},
		"pauses":           {`poll loop {"until":"last.index == 2","delayMs":1000` + graph, "", 2 * time.Second, 3},
		"never":            {`poll loop {"until":"false","max":4` + graph, "task poll failed: until is still false after 4 iterations", 0, 4},
		"until is no bool": {`poll loop {"until":"last"` + graph, "task poll failed: until: line 1, column 1: a condition must be true or false, but it is an object", 0, 1},
		"when it began":    {`poll loop {"until":"dateDiff(input.begun, now(), \"seconds\") == 2","delayMs":1000` + graph, "", 2 * time.Second, 3},
		"out of time":      {`poll loop {"until":"false","timeoutMs":2500,"delayMs":1000` + graph, "task poll failed: the task took longer than its timeoutMs", 2500 * time.Millisecond, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &world{other: func(_ context.Context, call *workflow.Call) (workflow.Result, error) {
					if call.Env.Index > 0 {
						require.NotNil(t, call.Env.Last)
					}
					return workflow.Result{Output: map[string]any{"index": json.Number(fmt.Sprint(call.Env.Index))}}, nil
				}}
				begin := time.Now()
				outcome, state := w.runNested(t, w.plan(t, "", test.task), map[string]any{"begun": exactjson.FormatTime(begin)})
				require.Equal(t, test.took, time.Since(begin))
				require.Equal(t, test.message, outcome.ErrorMessage)
				require.Len(t, w.calls, test.calls)
				require.Equal(t, fmt.Sprintf("e1/poll[%d].ask", test.calls-1), w.calls[test.calls-1])
				require.Len(t, state.Tasks[0].Nested.Frames, 1)
			})
		})
	}
}

// The time of a task that repeats a graph holds for what runs in it, and is given anew
// to each attempt of the execution.
func TestTimeoutStopsNestedEffects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{other: sleeps(time.Hour)}
		plan := w.plan(t, "", each("effect", `,"timeoutMs":1500`))
		state := NewState(plan, "e1")
		for range 2 {
			begin := time.Now()
			verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: state, Input: items(1)}, nil)
			require.NoError(t, err)
			require.Equal(t, 1500*time.Millisecond, time.Since(begin))
			require.Equal(t, "task each failed: the task took longer than its timeoutMs", verdict.Outcome.ErrorMessage)
			_, _, err = Reset(plan, state, nil)
			require.NoError(t, err)
		}
	})
}

// sub links a plan to the plan of "inner v1".
func (w *world) sub(t *testing.T, outer, inner *workflow.Plan) *workflow.Plan {
	t.Helper()
	return outer.Link(map[workflow.Ref]*workflow.Plan{{Alias: "inner", Version: "v1"}: inner}, nil)
}

func TestSubWorkflow(t *testing.T) {
	t.Parallel()
	w := &world{tasks: map[string]behaviour{"sub.score": func(_ context.Context, call *workflow.Call) (workflow.Result, error) {
		require.Nil(t, call.Env.Item)
		require.Empty(t, call.Env.Tasks)
		return workflow.Result{Output: call.Env.Input}, nil
	}}}
	inner := w.planOf(t, map[string]any{"type": "object", "required": []any{"a"}, "properties": map[string]any{"b": map[string]any{"default": "filled"}}}, "", "score pure")
	for input, want := range map[string]string{
		`{"a":"{{ tasks.first.output }}"}`: "",
		`{}`:                               "task sub failed: the input of workflow inner does not match its schema: a is required",
		`"{{ 1 }}"`:                        "task sub failed: the input of workflow inner must be an object",
	} {
		plan := w.sub(t, w.plan(t, "start>first first>sub", "first pure", `sub sub {"alias":"inner","version":"v1","input":`+input+`}`), inner)
		outcome, state := w.runNested(t, plan, nil)
		require.Equal(t, want, outcome.ErrorMessage)
		if want == "" {
			require.Equal(t, map[string]any{"a": "first", "b": "filled"}, state.Tasks[1].Output)
			require.Contains(t, w.calls, "e1/sub.score")
			require.Equal(t, 3, outcome.TasksCompleted)
		}
	}
	plan := w.plan(t, "", `sub sub {"alias":"inner","version":"v1"}`)
	outcome, _ := w.runNested(t, plan, nil)
	require.Equal(t, "task sub failed: there is no workflow inner v1 to run", outcome.ErrorMessage)
}

func TestSubWorkflowsAreNestedEightDeep(t *testing.T) {
	t.Parallel()
	w := &world{}
	plan := w.plan(t, "", `sub sub {"alias":"inner","version":"v1"}`)
	linked := *plan
	linked.Subs = map[workflow.Ref]*workflow.Plan{{Alias: "inner", Version: "v1"}: plan}
	outcome, _ := w.runNested(t, &linked, nil)
	require.Equal(t, "task sub failed: sub.sub.sub.sub.sub.sub.sub.sub.sub: sub-workflows must not be nested deeper than 8 levels", outcome.ErrorMessage)

	// Only workflows count.
	config := `{"alias":"inner","version":"v1"}`
	taskType := "sub"
	for range 8 {
		config = fmt.Sprintf(`{"items":"[1]","tasks":[{"id":"%s%d","type":"%s","config":%s}]}`, taskType, len(config), taskType, config)
		taskType = "each"
	}
	outcome, _ = w.runNested(t, w.sub(t, w.plan(t, "", "outer each "+config), w.plan(t, "", "in pure")), nil)
	require.Equal(t, StatusCompleted, outcome.Status)
}

func TestNestedGraphReadsOuterTasks(t *testing.T) {
	t.Parallel()
	w := &world{tasks: map[string]behaviour{
		"first": gives([]any{"x", "y"}),
		"outer[1].inner[0].leaf": func(_ context.Context, call *workflow.Call) (workflow.Result, error) {
			return workflow.Result{Output: map[string]any{"tasks": call.Env.Tasks, "item": call.Env.Item}}, nil
		},
	}}
	plan := w.plan(t, "start>first first>outer", "first pure",
		`outer each {"items":"tasks.first.output","edges":[{"source":"start","target":"a"},{"source":"a","target":"inner"}],"tasks":[{"id":"a","type":"pure"},
			{"id":"inner","type":"each","config":{"items":"[item + \"!\"]","tasks":[{"id":"leaf","type":"pure","config":{"reads":"{{ tasks.a.output }}{{ tasks.first.output }}"}}]}}]}`)
	_, state := w.runNested(t, plan, nil)
	got := state.Tasks[1].Output.([]any)[1].(map[string]any)["inner"].([]any)[0].(map[string]any) // the test's own shape
	require.Equal(t, "y!", got["item"])
	require.Contains(t, got["tasks"], "first")
	require.Contains(t, got["tasks"], "a")
}

// Runs of a graph beside each other see their own tasks, and what has been read stays theirs.
func TestNestedRunReadsOwnTasks(t *testing.T) {
	t.Parallel()
	w := &world{tasks: map[string]behaviour{}}
	plan := w.plan(t, "start>first first>each", "first pure", `each each {"items":"input.items","edges":[{"source":"start","target":"a"},{"source":"a","target":"b"},{"source":"b","target":"c"}],"tasks":[
		{"id":"a","type":"pure"},{"id":"b","type":"effect","config":{"reads":"{{ tasks.a.output }}{{ tasks.first.output }}"}},{"id":"c","type":"effect","config":{"reads":"{{ tasks.a.output }}"}}]}`)
	for i := range 3 {
		w.tasks[fmt.Sprintf("each[%d].c", i)] = func(_ context.Context, call *workflow.Call) (workflow.Result, error) {
			return workflow.Result{Output: call.Env.Tasks["a"].Output}, nil
		}
	}
	_, state := w.runNested(t, plan, items(3))
	require.Equal(t, []any{map[string]any{"c": "each[0].a"}, map[string]any{"c": "each[1].a"}, map[string]any{"c": "each[2].a"}}, state.Tasks[1].Output)
}

// After a crash a for-each has the items, and a workflow the input, that it began with.
func TestNestedInputsAreFixedAtStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{tasks: map[string]behaviour{
			"each[0].score": func(_ context.Context, call *workflow.Call) (workflow.Result, error) {
				return workflow.Result{Output: call.Env.Item}, nil
			},
			"sub.score": func(_ context.Context, call *workflow.Call) (workflow.Result, error) {
				return workflow.Result{Output: call.Env.Input}, nil
			},
		}}
		plan := w.sub(t, w.plan(t, "start>each start>sub", `each each {"items":"[now()]","tasks":[{"id":"score","type":"effect"}]}`,
			`sub sub {"alias":"inner","version":"v1","input":{"at":"{{ now() }}"}}`), w.plan(t, "", "score effect"))
		var stored *State
		died := errors.New("died")
		_, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: NewState(plan, "e1")}, func(_ context.Context, s *State) error {
			stored = copyOf(t, s)
			return died
		})
		require.ErrorIs(t, err, died)
		began := exactjson.FormatTime(time.Now())
		time.Sleep(time.Second)
		_, err = newRunner().Drive(t.Context(), &Run{Plan: plan, State: stored}, nil)
		require.NoError(t, err)
		require.Equal(t, []any{map[string]any{"score": began}}, stored.Tasks[0].Output)
		require.Equal(t, map[string]any{"at": began}, stored.Tasks[1].Output)
	})
}

func TestEndEndsOnlyItsGraph(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{tasks: map[string]behaviour{
			"each[0].slow": sleeps(time.Minute), "each[0].end": ends(workflow.End{}, map[string]any{"x": "y"}),
			"each[1].end": ends(workflow.End{Failed: true, ErrorMessage: "no"}, nil), "each[1].slow": sleeps(time.Second),
			"each[3].end": ends(workflow.End{Failed: true}, nil),
			"each[2].end": func(context.Context, *workflow.Call) (workflow.Result, error) {
				return workflow.Result{End: &workflow.End{}}, nil // without an output
			},
		}}
		graph := `,"edges":[{"source":"start","target":"slow"},{"source":"start","target":"end"}],"tasks":[{"id":"slow","type":"effect"},{"id":"end","type":"effect"}]}`
		begin := time.Now()
		outcome, state := w.runNested(t, w.plan(t, "", `each each {"items":"input.items","continue":true`+graph), items(4))
		require.Zero(t, time.Since(begin), "what runs beside an end is stopped")
		require.Equal(t, StatusCompleted, outcome.Status)
		require.Equal(t, []any{
			map[string]any{"x": "y"},
			map[string]any{"error": map[string]any{"code": "ENDED_AS_FAILED", "message": "each[1].end: no", "statusCode": nil}},
			map[string]any{},
			map[string]any{"error": map[string]any{"code": "ENDED_AS_FAILED", "message": "each[3].end: the graph ended as failed", "statusCode": nil}},
		}, state.Tasks[0].Output)
		require.Equal(t, StatusCancelled, state.Tasks[0].Nested.Frames[0].Tasks[0].Status)
	})
}

func TestNestedFailuresAreCountedAndNoticed(t *testing.T) {
	t.Parallel()
	w := &world{tasks: map[string]behaviour{"each[1].score": fails(external(503, 0))}}
	plan := w.plan(t, "", `each each {"items":"input.items","tasks":[{"id":"score","type":"effect","config":{"source":"bureau","onError":"continue"}}]}`)
	outcome, _ := w.runNested(t, plan, items(3))
	require.Equal(t, 3, outcome.TasksCompleted)
	require.Equal(t, 1, outcome.TasksFailed)
	require.True(t, outcome.SourceFailed)
	require.Len(t, outcome.Notices, 1)
	require.Equal(t, "each[1].score", outcome.Notices[0].TaskID)
	require.Equal(t, "bureau", outcome.Notices[0].Source)
}

// What had completed in a run counts, though the run was stopped.
func TestStoppedRunsCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{tasks: map[string]behaviour{"each[0].b": sleeps(time.Hour), "each[1].a": sleeps(time.Second), "each[1].b": fails(own("X"))}}
		plan := w.plan(t, "", `each each {"items":"input.items","edges":[{"source":"start","target":"a"},{"source":"a","target":"b"}],"tasks":[{"id":"a","type":"effect"},{"id":"b","type":"effect"}]}`)
		outcome, _ := w.runNested(t, plan, items(2))
		require.Equal(t, "task each failed: each[1].b: it went wrong", outcome.ErrorMessage)
		require.Equal(t, 2, outcome.TasksCompleted)
	})
}

// A notice names the run of the task that it is of, however deep it is nested.
func TestNoticesNamePaths(t *testing.T) {
	t.Parallel()
	w := &world{tasks: map[string]behaviour{
		"each[0].poll[0].score": fails(external(503, 0)), "each[1].poll[1].score": fails(external(503, 0)), "each[1].after": fails(own("LATE")),
	}}
	plan := w.plan(t, "start>each each>last", `each each {"items":"input.items","edges":[{"source":"start","target":"poll"},{"source":"poll","target":"after"}],"tasks":[
		{"id":"poll","type":"loop","config":{"until":"index == 1","tasks":[{"id":"score","type":"effect","config":{"onError":"continue"}}]}},
		{"id":"after","type":"effect","config":{"onError":"continue"}}]}`, `last effect {"onError":"continue"}`)
	w.tasks["last"] = fails(own("LAST"))
	outcome, _ := w.runNested(t, plan, items(2))
	var paths []string
	for _, notice := range outcome.Notices {
		paths = append(paths, notice.TaskID)
	}
	require.Equal(t, []string{"each[0].poll[0].score", "each[1].poll[1].score", "each[1].after", "last"}, paths)
}
