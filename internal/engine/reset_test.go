package engine

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/fault"
	"tranche/internal/workflow"
)

func TestReset(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		edges            string
		tasks            []string
		world            map[string]behaviour
		skip             []string
		skipped, resumed []string
		calls            []string // of the second attempt
	}{
		"what completed stays": {
			edges: "start>a a>b b>c a>d c>d", tasks: []string{"a effect", "b effect", "c effect", "d pure"},
			world:   map[string]behaviour{"c": fails(external(503, 0))},
			resumed: []string{"c", "d"}, calls: []string{"e1/c/2", "e1/d"},
		},
		"no answer, same key": {
			tasks: []string{"a effect"}, world: map[string]behaviour{"a": fails(external(0, 0))},
			resumed: []string{"a"}, calls: []string{"e1/a"},
		},
		"an answer before the last try": {
			tasks:   []string{`a effect {"retry":{"maxAttempts":2,"initialDelayMs":0}}`},
			world:   map[string]behaviour{"a": failsWith(external(503, 0), external(0, 0))},
			resumed: []string{"a"}, calls: []string{"e1/a/2"},
		},
		"a handled failure and what followed run again": {
			edges: "start>a a>b b>c", tasks: []string{`a effect {"onError":"continue"}`, "b effect", "c effect"},
			world:   map[string]behaviour{"a": fails(external(404, 0)), "c": fails(own("X"))},
			resumed: []string{"a", "b", "c"}, calls: []string{"e1/a/2", "e1/b/2", "e1/c"},
		},
		"a branch not taken stays skipped": {
			edges: "start>s s>a s>b a>j b>j j>f", tasks: []string{"s pure", "a effect", "b effect", "j effect", "f effect"},
			world:   map[string]behaviour{"s": takes("b"), "f": fails(own("X"))},
			resumed: []string{"f"}, calls: []string{"e1/f"},
		},
		"skipTasks pass over": {
			edges: "start>a a>b", tasks: []string{"a effect", "b pure"},
			world: map[string]behaviour{"a": fails(external(500, 0))}, skip: []string{"a"},
			skipped: []string{"a"}, resumed: []string{"b"}, calls: []string{"e1/b"},
		},
		"a completed task is not skipped after the fact": {
			edges: "start>a a>b", tasks: []string{"a effect", "b effect"},
			world: map[string]behaviour{"b": fails(own("X"))}, skip: []string{"a"},
			resumed: []string{"b"}, calls: []string{"e1/b"},
		},
		"after a failed end everything": {
			edges: "start>a a>end", tasks: []string{"a effect", "end pure"},
			world:   map[string]behaviour{"end": ends(workflow.End{Failed: true}, nil)},
			resumed: []string{"a", "end"}, calls: []string{"e1/a/2", "e1/end"},
		},
		"an end is decided anew": {
			edges: "start>a a>end start>b b>end", tasks: []string{"a effect", `b effect {"source":"s","onError":"continue"}`, "end pure"},
			world:   map[string]behaviour{"b": fails(external(0, 0)), "end": ends(workflow.End{}, nil)},
			resumed: []string{"b", "end"}, calls: []string{"e1/b", "e1/end"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{tasks: test.world}
			plan := w.plan(t, test.edges, test.tasks...)
			_, state := w.drive(t, plan)
			skipped, resumed, err := Reset(plan, state, test.skip)
			require.NoError(t, err)
			require.Equal(t, test.skipped, skipped)
			require.Equal(t, test.resumed, resumed)
			require.Equal(t, 2, state.Attempt)
			require.Equal(t, StatusPending, state.Status)
			require.Zero(t, state.Deadline, "an attempt has its own time")

			choice := test.world["s"]
			w.tasks, w.calls = map[string]behaviour{"s": choice}, nil
			verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: copyOf(t, state)}, nil)
			require.NoError(t, err)
			require.Equal(t, StatusCompleted, verdict.Outcome.Status)
			slices.Sort(w.calls)
			require.Equal(t, test.calls, w.calls)
		})
	}
}

// failsWith fails with one error after the other.
func failsWith(errs ...error) behaviour {
	return func(_ context.Context, call *workflow.Call) (workflow.Result, error) {
		return workflow.Result{}, errs[call.Attempt-1]
	}
}

// A source that failed in any iteration is a reason to do the loop again.
func TestResetSourcesOfALoop(t *testing.T) {
	t.Parallel()
	w := &world{tasks: map[string]behaviour{"poll[0].ask": fails(external(503, 0))}}
	plan := w.plan(t, "start>poll start>other", `poll loop {"until":"index == 1","tasks":[{"id":"ask","type":"effect","config":{"source":"bureau","onError":"continue"}}]}`, "other effect")
	outcome, state := w.drive(t, plan)
	require.Equal(t, StatusCompleted, outcome.Status)
	require.True(t, outcome.SourceFailed)
	ResetSources(plan, state)
	require.Zero(t, state.Deadline)
	w.tasks, w.calls = nil, nil
	verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: copyOf(t, state)}, nil)
	require.NoError(t, err)
	require.False(t, verdict.Outcome.SourceFailed)
	require.Equal(t, []string{"e1/poll[0].ask/2", "e1/poll[1].ask/2"}, w.calls)
}

// An end that waits for no source ends the execution once the sources have been asked
// again, and nothing begins that it would have kept from beginning in a first run.
func TestResetSourcesWithConcurrentEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edges string
		tasks []string
		// the calls of the second attempt, and the end whose output it has, if that is another
		again  []string
		output string
	}{
		"beside it": {
			edges: "start>bureau bureau>after start>slow slow>end start>endless",
			tasks: []string{"after effect", "slow effect", "endless effect", "end pure"},
			again: []string{"e1/bureau/2", "e1/end"},
		},
		"what the sources lead to waits for what was broken off": {
			edges: "start>bureau start>endless bureau>both endless>both start>slow slow>end",
			tasks: []string{"endless effect", "both effect", "slow effect", "end pure"},
			again: []string{"e1/bureau/2", "e1/end"},
		},
		"before it": {
			edges: "start>bureau bureau>end start>endless",
			tasks: []string{"endless effect", "end pure"},
			again: []string{"e1/bureau/2", "e1/end"},
		},
		"beside one that they lead to now": {
			edges: "start>bureau bureau>which which>after which>best start>slow slow>end",
			tasks: []string{"which pure", "after effect", "slow effect", "best pure", "end pure"},
			again: []string{"e1/bureau/2", "e1/which", "e1/best", "e1/end"}, output: "best",
		},
		"after a refusal": {
			edges: "start>bureau bureau>store start>slow slow>check check>store check>end",
			tasks: []string{"slow effect", "check pure", "store effect", "end pure"},
			again: []string{"e1/bureau/2", "e1/end"},
		},
		"while a signal would be waited for": {
			edges: "start>bureau bureau>approval start>slow slow>end",
			tasks: []string{"approval wait", "slow effect", "end pure"},
			again: []string{"e1/bureau/2", "e1/end"},
		},
		"beside one source that leads to another": {
			edges: "start>bureau bureau>between between>second start>slow slow>end",
			tasks: []string{"between effect", `second effect {"source":"second","onError":"continue"}`, "slow effect", "end pure"},
			again: []string{"e1/bureau/2", "e1/between/2", "e1/second/2", "e1/end"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				asked := make(chan struct{})
				w := &world{tasks: map[string]behaviour{
					"bureau": func(context.Context, *workflow.Call) (workflow.Result, error) {
						close(asked)
						return workflow.Result{}, external(503, 0)
					},
					"slow": func(context.Context, *workflow.Call) (workflow.Result, error) {
						<-asked
						synctest.Wait()
						return workflow.Result{}, nil
					},
					"after": hangs, "endless": hangs, "which": takes("after"), "check": takes("end"), "second": fails(external(503, 0)),
					"end": ends(workflow.End{}, map[string]any{"of": "end"}), "best": ends(workflow.End{}, map[string]any{"of": "best"}),
				}}
				plan := w.plan(t, test.edges, append([]string{`bureau effect {"source":"bureau","onError":"continue"}`}, test.tasks...)...)
				outcome, state := w.drive(t, plan)
				require.Equal(t, StatusCompleted, outcome.Status)
				require.True(t, outcome.SourceFailed)

				ResetSources(plan, state)
				delete(w.tasks, "bureau")
				delete(w.tasks, "second")
				w.tasks["which"], w.calls = takes("best"), nil
				verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: copyOf(t, state)}, nil)
				require.NoError(t, err)
				require.Equal(t, StatusCompleted, verdict.Outcome.Status)
				require.Equal(t, map[string]any{"of": cmp.Or(test.output, "end")}, verdict.Outcome.Output)
				require.False(t, verdict.Outcome.SourceFailed)
				require.Equal(t, test.again, w.calls)
			})
		})
	}
}

// A time limit that ends while the sources are asked is one, though more was to come.
func TestResetSourcesTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{tasks: map[string]behaviour{"bureau": fails(external(503, 0)), "endless": hangs, "end": ends(workflow.End{}, nil)}}
		plan := w.plan(t, "start>bureau start>endless bureau>end", `bureau effect {"source":"bureau","onError":"continue"}`, "endless effect", "end pure")
		outcome, state := w.drive(t, plan)
		require.Equal(t, StatusCompleted, outcome.Status)
		ResetSources(plan, state)
		require.True(t, state.Tasks[1].Later)
		w.tasks["bureau"] = hangs
		verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: state}, nil)
		require.NoError(t, err)
		require.Equal(t, StatusTimeout, verdict.Outcome.Status)
		require.Equal(t, map[string]Status{"bureau": StatusTimeout, "endless": StatusPending, "end": StatusPending}, statuses(plan, state))
		require.False(t, state.Tasks[1].Later)
	})
}

func hangs(ctx context.Context, _ *workflow.Call) (workflow.Result, error) {
	<-ctx.Done()
	return workflow.Result{}, ctx.Err()
}

// What failed otherwise and was handled keeps its result.
func TestResetSourcesAlone(t *testing.T) {
	t.Parallel()
	w := &world{tasks: map[string]behaviour{
		"bureau": fails(external(503, 0)), "other": fails(external(503, 0)), "end": ends(workflow.End{}, map[string]any{}),
	}}
	plan := w.plan(t, "start>bureau start>other other>late late>end bureau>end", `bureau effect {"source":"bureau","onError":"continue"}`,
		`other effect {"source":"other","onError":{"goto":"late"}}`, "late effect", "end pure")
	outcome, state := w.drive(t, plan)
	require.Equal(t, StatusCompleted, outcome.Status)
	ResetSources(plan, state)
	delete(w.tasks, "bureau")
	w.calls = nil
	verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: copyOf(t, state)}, nil)
	require.NoError(t, err)
	require.Equal(t, StatusCompleted, verdict.Outcome.Status)
	require.Equal(t, []string{"e1/bureau/2", "e1/end"}, w.calls)
}

// A loop goes on after the iteration that was its last, unless that is why it failed.
func TestResetOfALoopBetweenIterations(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config string
		calls  []string // of the second attempt
	}{
		"cancelled as it paused": {`"until":"index == 1","delayMs":2000`, []string{"e1/poll[1].ask"}},
		"until never held":       {`"until":"last == \"yes\"","max":2`, []string{"e1/poll[0].ask/2", "e1/poll[1].ask/2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &world{}
				plan := w.plan(t, "", `poll loop {`+test.config+`,"tasks":[{"id":"ask","type":"effect"}]}`)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(ErrCancelled) })
				run := &Run{Plan: plan, State: NewState(plan, "e1")}
				verdict, err := newRunner().Drive(ctx, run, nil)
				require.NoError(t, err)
				require.NotEqual(t, StatusCompleted, verdict.Outcome.Status)
				_, _, err = Reset(plan, run.State, nil)
				require.NoError(t, err)
				w.calls = nil
				_, err = newRunner().Drive(t.Context(), run, nil)
				require.NoError(t, err)
				require.Equal(t, test.calls, w.calls)
			})
		})
	}
}

func TestResetTwice(t *testing.T) {
	t.Parallel()
	w := &world{tasks: map[string]behaviour{"a": fails(external(500, 0)), "b": fails(own("X"))}}
	plan := w.plan(t, "start>a a>b", "a effect", "b effect")
	_, state := w.drive(t, plan)
	_, _, err := Reset(plan, state, []string{"a"})
	require.NoError(t, err)
	_, err = newRunner().Drive(t.Context(), &Run{Plan: plan, State: state}, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]Status{"a": StatusSkipped, "b": StatusFailed}, statuses(plan, state))

	// A task that an earlier retry skipped runs again unless this retry skips it too.
	_, resumed, err := Reset(plan, state, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, resumed)
	w.tasks, w.calls = nil, nil
	_, err = newRunner().Drive(t.Context(), &Run{Plan: plan, State: state}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"e1/a/2", "e1/b"}, w.calls)
}

func TestResetRefusesUnknownTasks(t *testing.T) {
	t.Parallel()
	w := &world{tasks: map[string]behaviour{"a": fails(own("X"))}}
	plan := w.plan(t, "", "a effect")
	_, state := w.drive(t, plan)
	_, _, err := Reset(plan, state, []string{"a", "nobody"})
	require.ErrorIs(t, err, fault.Invalid)
	require.Equal(t, "skipTasks[1]", fault.From(err).Details[0].Field)
	require.Equal(t, StatusFailed, state.Status)
	require.Equal(t, 1, state.Attempt)
}

// An attempt that is put off is made ready again without being counted; a call
// that was answered in it has another key than that of the next attempt.
func TestResetNeverReusesIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := &world{tasks: map[string]behaviour{"a": fails(external(500, 0))}}
	plan := w.plan(t, "", "a effect")
	_, state := w.drive(t, plan)
	for _, putOff := range []bool{true, false, false} {
		_, _, err := Reset(plan, state, nil)
		require.NoError(t, err)
		if putOff {
			state.Attempt--
		}
		_, err = newRunner().Drive(t.Context(), &Run{Plan: plan, State: state}, nil)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"e1/a", "e1/a/2", "e1/a/3", "e1/a/4"}, w.calls)
}

func TestRetryKeepsCompletedRuns(t *testing.T) {
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

// Of the runs that a retry does again as many go on at a time as at first, and all in the end.
func TestRetryRespectsForEachConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{tasks: map[string]behaviour{"each[0].score": fails(own("X")), "each[1].score": fails(own("X")), "each[2].score": sleeps(time.Hour)}}
		plan := w.plan(t, "", each("effect", `,"concurrency":1,"continue":true`))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(ErrCancelled) })
		run := &Run{Plan: plan, State: NewState(plan, "e1"), Input: items(4)}
		verdict, err := newRunner().Drive(ctx, run, nil)
		require.NoError(t, err)
		require.Equal(t, StatusCancelled, verdict.Outcome.Status)
		_, _, err = Reset(plan, run.State, nil)
		require.NoError(t, err)
		w.tasks, w.calls = nil, nil
		verdict, err = newRunner().Drive(t.Context(), run, nil)
		require.NoError(t, err)
		require.Equal(t, StatusCompleted, verdict.Outcome.Status)
		require.Equal(t, []string{"e1/each[0].score", "e1/each[1].score", "e1/each[2].score", "e1/each[3].score"}, w.calls)
		require.Equal(t, 5, verdict.Outcome.TasksCompleted)
	})
}
