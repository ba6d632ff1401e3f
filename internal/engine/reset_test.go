package engine

import (
	"slices"
	"testing"

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

	// What an earlier retry passed over runs again unless it is named again.
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
func TestResetGivesNoKeyTwice(t *testing.T) {
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
