package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

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

// TestFutureWaits holds that a signal is kept for runs that have not begun, but
// not for one that the items or the iterations leave no room for.
func TestFutureWaits(t *testing.T) {
	t.Parallel()
	w := &world{}
	plan := w.plan(t, "", `each each {"items":"input.items","concurrency":1,"tasks":[{"id":"poll","type":"loop",`+
		`"config":{"until":"false","max":3,"tasks":[{"id":"ask","type":"wait"}]}}]}`)
	state := NewState(plan, "e1")
	require.NotNil(t, FutureWait(plan, state, "each[2].poll[0].ask"), "nobody has counted the items")
	verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: state, Input: items(2)}, nil)
	require.NoError(t, err)
	require.Nil(t, verdict.Outcome)
	for path, known := range map[string]bool{
		"each[0].poll[1].ask": true, "each[1].poll[2].ask": true,
		"each[2].poll[0].ask": false, "each[0].poll[3].ask": false, "each[1].poll[3].ask": false,
	} {
		require.Equal(t, known, FutureWait(plan, state, path) != nil, path)
	}
}

func TestForEachRefusesWhatIsNoList(t *testing.T) {
	t.Parallel()
	w := &world{}
	outcome, _ := w.runNested(t, w.plan(t, "", each("pure", "")), map[string]any{"items": "x"})
	require.Equal(t, "task each failed: items: line 1, column 1: a list is needed here, but it is text", outcome.ErrorMessage)
	outcome, _ = w.runNested(t, w.plan(t, "", `each each {"items":"input.items + 1","tasks":[{"id":"in","type":"pure"}]}`), map[string]any{})
	require.Equal(t, "task each failed: items: line 1, column 13: + needs two numbers or two texts, but input.items is null", outcome.ErrorMessage)
	outcome, _ = w.runNested(t, w.plan(t, "", `a pure {"when":"input.items"}`), map[string]any{})
	require.Equal(t, "task a failed: when: line 1, column 1: a condition must be true or false, but it is null", outcome.ErrorMessage)
	outcome, _ = w.runNested(t, w.plan(t, "", each("pure", "")), items(workflow.ItemsMax+1))
	require.Equal(t, "task each failed: items has 10001 items; there are at most 10000", outcome.ErrorMessage)
	outcome, _ = w.runNested(t, w.plan(t, "", each("pure", "")), items(workflow.ItemsMax))
	require.Equal(t, StatusCompleted, outcome.Status)
	require.Equal(t, workflow.ItemsMax+1, outcome.TasksCompleted)
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
		"never":            {`poll loop {"until":"false","max":4` + graph, "task poll failed: until does not hold after 4 iterations", 0, 4},
		"until is no bool": {`poll loop {"until":"last"` + graph, "task poll failed: until: line 1, column 1: a condition must be true or false, but it is an object", 0, 1},
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
				outcome, state := w.runNested(t, w.plan(t, "", test.task), nil)
				require.Equal(t, test.took, time.Since(begin))
				require.Equal(t, test.message, outcome.ErrorMessage)
				require.Len(t, w.calls, test.calls)
				require.Equal(t, fmt.Sprintf("e1/poll[%d].ask", test.calls-1), w.calls[test.calls-1])
				require.Len(t, state.Tasks[0].Nested.Frames, 1)
			})
		})
	}
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
	require.Contains(t, outcome.ErrorMessage, "workflows are nested at most 8 deep")
	require.Contains(t, outcome.ErrorMessage, "sub.sub.sub.sub.sub.sub.sub.sub.sub")
}

func TestInnerGraphsSeeTheTasksAround(t *testing.T) {
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
	got := state.Tasks[1].Output.([]any)[1].(map[string]any)["inner"].([]any)[0].(map[string]any) //nolint:forcetypeassert // the test's own shape
	require.Equal(t, "y!", got["item"])
	require.Contains(t, got["tasks"], "first")
	require.Contains(t, got["tasks"], "a")
}

func TestAnEndEndsItsOwnGraphOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{tasks: map[string]behaviour{
			"each[0].slow": sleeps(time.Minute), "each[0].end": ends(workflow.End{}, map[string]any{"x": "y"}),
			"each[1].end": ends(workflow.End{Failed: true, ErrorMessage: "no"}, nil), "each[1].slow": sleeps(time.Second),
		}}
		graph := `,"edges":[{"source":"start","target":"slow"},{"source":"start","target":"end"}],"tasks":[{"id":"slow","type":"effect"},{"id":"end","type":"effect"}]}`
		begin := time.Now()
		outcome, state := w.runNested(t, w.plan(t, "", `each each {"items":"input.items","continue":true`+graph), items(2))
		require.Zero(t, time.Since(begin), "what runs beside an end is stopped")
		require.Equal(t, StatusCompleted, outcome.Status)
		require.Equal(t, []any{
			map[string]any{"x": "y"},
			map[string]any{"error": map[string]any{"code": "ENDED_AS_FAILED", "message": "each[1].end: no", "statusCode": nil}},
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

func TestWaitForSignal(t *testing.T) {
	t.Parallel()
	plan := (&world{}).plan(t, "start>wait wait>after", `wait wait {"timeoutMs":3600000,"onError":"continue"}`, `after pure {"reads":"{{ tasks.wait.output }}"}`)
	for name, test := range map[string]struct {
		early, late, never bool
		status             Status
	}{
		"it comes":        {status: StatusCompleted},
		"it was there":    {early: true, status: StatusCompleted},
		"it is seen late": {late: true, status: StatusCompleted},
		"never":           {never: true, status: StatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				state, signals := NewState(plan, "e1"), map[string]any{}
				drive := func() Verdict {
					verdict, err := newRunner().Drive(t.Context(), &Run{
						Plan: plan, State: state, Signals: func(context.Context) (map[string]any, error) { return signals, nil },
					}, nil)
					require.NoError(t, err)
					return verdict
				}
				if test.early {
					signals["wait"] = "payload"
				}
				verdict := drive()
				if !test.early {
					require.Nil(t, verdict.Outcome)
					require.Equal(t, time.Hour, time.Until(verdict.WakeAt))
					require.Equal(t, StatusWaiting, state.Tasks[0].Status)
					if !test.never {
						signals["wait"] = "payload"
					}
					if test.never || test.late {
						time.Sleep(time.Until(verdict.WakeAt))
					}
					state = copyOf(t, state)
					verdict = drive()
				}
				require.Equal(t, StatusCompleted, verdict.Outcome.Status)
				require.Equal(t, test.status, state.Tasks[0].Status)
				if test.never {
					require.Equal(t, "SIGNAL_TIMEOUT", state.Tasks[0].Error.Code)
				} else {
					require.Equal(t, "payload", state.Tasks[0].Output)
				}
			})
		})
	}
}

// Signals are looked for once a second while an execution is driven, and once more when
// the time of a wait is over.
func TestSignalInTheLastMoment(t *testing.T) {
	t.Parallel()
	plan := (&world{}).plan(t, "", `each each {"items":"[1]","tasks":[{"id":"wait","type":"wait","config":{"timeoutMs":800}}]}`)
	synctest.Test(t, func(t *testing.T) {
		begun, state := time.Now(), NewState(plan, "e1")
		_, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: state, Signals: func(context.Context) (map[string]any, error) {
			if time.Since(begun) < 500*time.Millisecond {
				return nil, nil
			}
			return map[string]any{"each[0].wait": "payload"}, nil
		}}, func(context.Context, *State) error { return nil })
		require.NoError(t, err)
		require.Equal(t, StatusCompleted, state.Status)
	})
}

func TestCallbackAddressesNameTheirWait(t *testing.T) {
	t.Parallel()
	var urls []string
	w := &world{other: func(_ context.Context, call *workflow.Call) (workflow.Result, error) {
		url, err := call.Env.CallbackURL("approve")
		urls = append(urls, url)
		return workflow.Result{Output: url}, err
	}}
	plan := w.plan(t, "", `each each {"items":"input.items","edges":[{"source":"start","target":"ask"},{"source":"ask","target":"approve"}],"tasks":[{"id":"ask","type":"pure"},{"id":"approve","type":"wait"}]}`)
	state := NewState(plan, "e1")
	verdict, err := newRunner().Drive(t.Context(), &Run{
		Plan: plan, State: state, Input: items(2),
		CallbackURL: func(path string) (string, error) { return "https://example.com/" + path, nil },
	}, nil)
	require.NoError(t, err)
	require.Nil(t, verdict.Outcome)
	require.Equal(t, []string{"https://example.com/each[0].approve", "https://example.com/each[1].approve"}, urls)
	waits := Waits(plan, state)
	require.Len(t, waits, 2)
	require.Equal(t, "each[1].approve", waits[1].Path)
}

func TestRetryGoesOnWithTheRunsThatAreLeft(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		task  string
		calls []string // of the second attempt
	}{
		"a for-each": {
			`outer each {"items":"input.items","concurrency":1,"edges":[{"source":"start","target":"a"},{"source":"a","target":"b"}],"tasks":[{"id":"a","type":"effect"},{"id":"b","type":"effect"}]}`,
			[]string{"e1/outer[1].b/2", "e1/outer[2].a", "e1/outer[2].b"},
		},
		"a loop": {
			`outer loop {"until":"index == 2","edges":[{"source":"start","target":"a"},{"source":"a","target":"b"}],"tasks":[{"id":"a","type":"effect"},{"id":"b","type":"effect"}]}`,
			[]string{"e1/outer[1].b/2", "e1/outer[2].a", "e1/outer[2].b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{tasks: map[string]behaviour{"outer[1].b": fails(external(503, 0))}}
			plan := w.plan(t, "", test.task)
			outcome, state := w.runNested(t, plan, items(3))
			require.Equal(t, StatusFailed, outcome.Status)
			_, resumed, err := Reset(plan, state, nil)
			require.NoError(t, err)
			require.Equal(t, []string{"outer"}, resumed)
			w.tasks, w.calls = nil, nil
			state = copyOf(t, state)
			verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: state, Input: items(3)}, nil)
			require.NoError(t, err)
			require.Equal(t, StatusCompleted, verdict.Outcome.Status)
			require.Equal(t, 7, verdict.Outcome.TasksCompleted)
			slices.Sort(w.calls)
			require.Equal(t, test.calls, w.calls)
		})
	}
}
