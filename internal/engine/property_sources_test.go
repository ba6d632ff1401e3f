package engine

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/workflow"
)

// reach is what comes of a state in any order of the effects: how the execution may
// end, and which effects may be called.
type reach struct {
	*sketch
	t              *rapid.T
	seen           map[string]bool // what has been explored
	results, calls map[string]bool
}

func (s *sketch) reach(t *rapid.T, state *State) *reach {
	r := &reach{sketch: s, t: t, seen: map[string]bool{}, results: map[string]bool{}, calls: map[string]bool{}}
	r.explore(state, nil, event{Kind: eventStarted, At: time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)})
	return r
}

// explore lets an event happen, and after it every other that may be next. running are
// the effects under way.
func (r *reach) explore(state *State, running []int, cause event) {
	actions := next(r.plan, state, &cause, &actionBuffer{})
	if state.Ended() {
		o := conclude(r.plan, state)
		r.results[fmt.Sprint(o.Status, plain(o.Output))] = true
		return
	}
	for _, action := range actions {
		task := r.plan.Graph.Tasks[action.Task]
		switch {
		case action.Kind == actionCheck:
			kind := eventAdmitted
			if r.fates[task.ID].passes {
				kind = eventPassed
			}
			r.explore(state, running, event{Kind: kind, Task: action.Task, At: cause.At})
			return
		case !task.Program.Effect():
			r.explore(state, running, r.answer(action.Task, 1, cause.At))
			return
		}
		r.calls[task.ID] = true
		running = append(slices.Clip(running), action.Task)
	}
	slices.Sort(running)
	if key := plain(state) + fmt.Sprint(running); !r.seen[key] {
		r.seen[key] = true
		for n, i := range running {
			others := slices.Delete(slices.Clone(running), n, n+1)
			r.explore(copyOf(r.t, state), others, r.answer(i, 1, cause.At))
		}
	}
}

// drawSources is a random graph of effects that are not tried again, of which some are
// sources that fail, and of several ends without effects.
func drawSources(t *rapid.T) *sketch {
	sketch := drawSketch(t, 7, 0)
	for _, f := range sketch.fates {
		f.fails = f.fails / 9 * 9 // always or never
	}
	for range 2 {
		f := sketch.fates[rapid.SampledFrom(sketch.order).Draw(t, "source")]
		f.kind, f.onError, f.fails, f.passes = "effect", "continue", 9, false
	}
	for range 3 {
		if f := sketch.fates[rapid.SampledFrom(sketch.order).Draw(t, "end")]; f.onError == "continue" && f.fails == 0 {
			f.kind, f.ends, f.chooses = "pure", &workflow.End{}, false
		}
	}
	sketch.plan = sketch.compile(t)
	for _, task := range sketch.plan.Graph.Tasks {
		task.Retry = workflow.RetryPolicy{}
		if f := sketch.fates[task.ID]; f.kind == "effect" && f.onError == "continue" && f.fails > 0 {
			task.Source = "bureau"
		}
	}
	return sketch
}

// TestResetSourcesMatchesSomeFirstRun retries the sources that failed beside several
// ends: whatever the retry gives, and calls after them, so might an execution whose
// sources had not failed; and it asks at least one of them again.
func TestResetSourcesMatchesSomeFirstRun(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sketch := drawSources(t)
		draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
		first := simulation{sketch: sketch, t: t, draw: draw}
		if outcome := first.run(); !outcome.SourceFailed {
			return
		}
		for _, task := range sketch.plan.Graph.Tasks {
			if task.Source != "" {
				sketch.fates[task.ID].fails = 0
			}
		}
		before := statuses(sketch.plan, first.state)
		ResetSources(sketch.plan, first.state)
		retried := copyOf(t, first.state)
		got, want := sketch.reach(t, first.state), sketch.reach(t, NewState(sketch.plan, "e1"))
		require.Subset(t, want.results, got.results, "%v, %v", before, sketch.edges)
		calls := maps.Clone(want.calls)
		for i, task := range sketch.plan.Graph.Tasks {
			if t := &retried.Tasks[i]; t.Status == StatusPending && !t.Later {
				calls[task.ID] = true // it failed, or leads to one that did
			}
		}
		require.Subset(t, calls, got.calls, "%v, %v", before, sketch.edges)
		asked := slices.ContainsFunc(sketch.plan.Graph.Tasks, func(task *workflow.Task) bool {
			return task.Source != "" && before[task.ID] == StatusFailed && got.calls[task.ID]
		})
		require.True(t, asked, "%v, %v", before, sketch.edges)
	})
}
