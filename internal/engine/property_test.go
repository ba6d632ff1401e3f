package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/workflow"
)

// fate is what a task of a random graph does.
type fate struct {
	kind    string // pure or effect
	passes  bool   // its when is false
	fails   int    // times it fails before it succeeds
	onError string // fail, continue, or the id that goto names
	chooses bool
	chosen  []string
	ends    *workflow.End
}

// sketch is a random graph: tasks by id, and edges from earlier to later ids.
// The order of the definition is another one.
type sketch struct {
	order []string
	fates map[string]*fate
	edges []string
	plan  *workflow.Plan
}

// decisive says how many tasks of a sketch may end or fail the graph.
type decisiveTasks int

func drawSketch(t *rapid.T, most int, decisive decisiveTasks) *sketch {
	n := rapid.IntRange(1, most).Draw(t, "tasks")
	s := &sketch{fates: map[string]*fate{}}
	targets := map[int][]string{}
	for i := range n {
		id := fmt.Sprintf("t%d", i)
		s.order = append(s.order, id)
		s.fates[id] = &fate{kind: rapid.SampledFrom([]string{"pure", "effect"}).Draw(t, "kind"), onError: "continue"}
		entry := i == 0 || rapid.IntRange(0, 3).Draw(t, "entry") == 0
		for j := range i {
			if rapid.IntRange(0, 2).Draw(t, "edge") == 0 {
				s.edges = append(s.edges, fmt.Sprintf("t%d>%s", j, id))
				targets[j] = append(targets[j], id)
			} else if j == i-1 && !entry && !slices.ContainsFunc(s.edges, func(e string) bool { return strings.HasSuffix(e, ">"+id) }) {
				entry = true
			}
		}
		if entry {
			s.edges = append(s.edges, "start>"+id)
		}
	}
	for i, id := range s.order {
		f := s.fates[id]
		f.passes = rapid.IntRange(0, 5).Draw(t, "passes") == 0
		f.fails = rapid.SampledFrom([]int{0, 0, 0, 1, 2, 9}).Draw(t, "fails")
		if len(targets[i]) == 0 {
			continue
		}
		if rapid.IntRange(0, 2).Draw(t, "goto") == 0 {
			f.onError = rapid.SampledFrom(targets[i]).Draw(t, "target")
		}
		if rapid.IntRange(0, 2).Draw(t, "chooses") == 0 {
			f.chooses = true
			for _, target := range targets[i] {
				if rapid.Bool().Draw(t, "chosen") {
					f.chosen = append(f.chosen, target)
				}
			}
		}
	}
	for range int(decisive) {
		f := s.fates[rapid.SampledFrom(s.order).Draw(t, "decisive")]
		if rapid.Bool().Draw(t, "end") {
			f.ends, f.fails = &workflow.End{Failed: rapid.Bool().Draw(t, "failed"), Notes: []string{"n"}}, 0
		} else {
			f.fails, f.onError = 9, "fail"
		}
	}
	s.order = rapid.Permutation(s.order).Draw(t, "order")
	s.plan = s.compile(t)
	return s
}

func (s *sketch) compile(t *rapid.T) *workflow.Plan {
	def := workflow.Definition{InputSchema: map[string]any{}}
	for _, id := range s.order {
		f := s.fates[id]
		config := map[string]any{
			"retry": map[string]any{"maxAttempts": json.Number("3"), "initialDelayMs": json.Number("0"), "retryOn": []any{"X"}},
		}
		if f.passes {
			config["when"] = "false"
		}
		config["onError"] = f.onError
		if strings.HasPrefix(f.onError, "t") {
			config["onError"] = map[string]any{"goto": f.onError}
		}
		def.Tasks = append(def.Tasks, workflow.TaskDefinition{ID: id, Type: f.kind, Config: config})
	}
	for _, edge := range s.edges {
		source, target, _ := strings.Cut(edge, ">")
		def.Edges = append(def.Edges, workflow.EdgeDefinition{Source: source, Target: target})
	}
	plan, err := workflow.Compile(def, map[string]workflow.TaskType{
		"pure": worldType{}, "effect": worldType{effect: true},
	})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return plan
}

// answer is what a task gives when an attempt of it runs.
func (s *sketch) answer(i, attempt int, at time.Time) event {
	id := s.plan.Graph.Tasks[i].ID
	f := s.fates[id]
	if attempt <= f.fails {
		return event{Kind: eventFailed, Task: i, Err: own("X"), At: at}
	}
	result := workflow.Result{Output: map[string]any{"id": id, "n": json.Number("1.10")}, End: f.ends}
	if f.chooses {
		result.Targets = append([]string{}, f.chosen...)
	}
	return event{Kind: eventCompleted, Task: i, Result: result, At: at}
}

// expect works out the statuses in another way than the engine: task by task
// in the order of the edges. It knows no ends and no failures of the graph.
func (s *sketch) expect() map[string]Status {
	statuses := map[string]Status{}
	taken := map[string]bool{} // edges
	ids := slices.Clone(s.order)
	slices.SortFunc(ids, func(a, b string) int { return len(a) - len(b) + strings.Compare(a, b) })
	for _, id := range ids {
		f, begins := s.fates[id], false
		var out []string
		for _, edge := range s.edges {
			source, target, _ := strings.Cut(edge, ">")
			begins = begins || target == id && (source == "start" || taken[edge])
			if source == id {
				out = append(out, target)
			}
		}
		attempts := 1
		if f.kind == "effect" {
			attempts = 3
		}
		take := func(targets []string) {
			for _, target := range targets {
				taken[id+">"+target] = true
			}
		}
		plain := slices.DeleteFunc(slices.Clone(out), func(target string) bool { return target == f.onError })
		switch {
		case !begins:
			statuses[id] = StatusSkipped
		case f.passes:
			statuses[id] = StatusSkipped
			take(plain)
		case f.fails >= attempts && f.onError == "continue":
			statuses[id] = StatusFailed
			take(out)
		case f.fails >= attempts:
			statuses[id] = StatusFailed
			take([]string{f.onError})
		case f.chooses:
			statuses[id] = StatusCompleted
			take(f.chosen)
		default:
			statuses[id] = StatusCompleted
			take(plain)
		}
	}
	return statuses
}

// simulation drives a sketch with next alone. Effects are answered in an order
// that draw chooses; between any two steps the state may go through JSON or
// the process may die.
type simulation struct {
	*sketch
	t       *rapid.T
	state   *State
	running []int
	begun   map[int]bool
	at      time.Time
	restore bool
	crash   bool
	draw    func(n int) int
}

func (s *simulation) run() *Outcome {
	s.state = NewState(s.plan, "e1")
	s.begun = map[int]bool{}
	s.at = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	event := event{Kind: eventStarted, At: s.at}
	for range 10_000 {
		actions := s.next(event)
		if s.state.Ended() {
			require.Empty(s.t, actions)
			return conclude(s.plan, s.state)
		}
		event = s.perform(actions)
	}
	s.t.Fatal("the execution does not end")
	return nil
}

func (s *simulation) next(event event) []action {
	before := statuses(s.plan, s.state)
	actions := next(s.plan, s.state, &event, &actionBuffer{})
	for id, status := range statuses(s.plan, s.state) {
		switch before[id] {
		case StatusCompleted, StatusFailed, StatusSkipped:
			require.Equal(s.t, before[id], status, "task %s was decided twice", id)
		default:
		}
	}
	if s.restore {
		s.state = copyOf(s.t, s.state)
	}
	return actions
}

func (s *simulation) perform(actions []action) event {
	s.at = s.at.Add(time.Millisecond)
	var wakeAt time.Time
	for _, action := range actions {
		task := s.plan.Graph.Tasks[action.Task]
		switch action.Kind {
		case actionWait:
			wakeAt = action.At
			continue
		case actionCheck:
			require.Len(s.t, actions, 1)
			s.checkOrder(action.Task)
			kind := eventAdmitted
			if s.fates[task.ID].passes {
				kind = eventPassed
			}
			return event{Kind: kind, Task: action.Task, At: s.at}
		case actionRun, actionItems, actionTest, actionStop:
		}
		s.checkOrder(action.Task)
		attempt := s.state.Tasks[action.Task].Attempt
		require.Equal(s.t, attempt > 1, s.begun[action.Task], "task %s", task.ID)
		s.begun[action.Task] = true
		if !task.Program.Effect() {
			require.Len(s.t, actions, 1)
			return s.answer(action.Task, attempt, s.at)
		}
		s.running = append(s.running, action.Task)
	}
	if s.crash && len(s.running) > 0 && s.draw(3) == 0 {
		for _, i := range s.running {
			delete(s.begun, i)
			if s.state.Tasks[i].Attempt > 1 {
				s.begun[i] = true
			}
		}
		s.running = nil
		s.state = copyOf(s.t, s.state)
		return event{Kind: eventStarted, At: s.at}
	}
	choice := s.draw(len(s.running) + 1)
	if !wakeAt.IsZero() && (len(s.running) == 0 || choice == len(s.running)) {
		return event{Kind: eventTimer, At: wakeAt}
	}
	choice %= max(len(s.running), 1)
	i := s.running[choice]
	s.running = slices.Delete(s.running, choice, choice+1)
	return s.answer(i, s.state.Tasks[i].Attempt, s.at)
}

// checkOrder checks that a task begins after all its predecessors are decided.
func (s *simulation) checkOrder(i int) {
	for _, source := range s.plan.Graph.Tasks[i].Sources {
		require.True(s.t, s.state.Tasks[source].decided(s.plan.Graph.Tasks[source]))
	}
}

// timeless is an outcome without its times.
func timeless(o *Outcome) *Outcome {
	for i := range o.Notices {
		o.Notices[i].CreatedAt = time.Time{}
	}
	return o
}

// TestInterleavingsHaveSameOutcome runs random graphs in which nothing competes:
// every task is decided once, after what leads to it, as an independent
// evaluation says, and nothing depends on the order of the effects, on the
// state's way through JSON or on crashes between any two steps.
func TestInterleavingsHaveSameOutcome(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sketch := drawSketch(t, 10, 0)
		first := simulation{sketch: sketch, t: t, draw: func(int) int { return 0 }}
		want := timeless(first.run())
		require.Empty(t, cmp.Diff(sketch.expect(), statuses(sketch.plan, first.state)))
		require.Equal(t, StatusCompleted, want.Status)

		draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
		second := simulation{sketch: sketch, t: t, restore: true, draw: draw}
		require.Empty(t, cmp.Diff(want, timeless(second.run())))
		third := simulation{sketch: sketch, t: t, crash: true, draw: draw}
		require.Empty(t, cmp.Diff(want, timeless(third.run())))
	})
}

// TestInterleavingsHaveSameEnd allows one task to end or fail the graph: how many
// others run beside it is chance, what the execution gives is not.
func TestInterleavingsHaveSameEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sketch := drawSketch(t, 10, 1)
		result := func(s *simulation) Outcome {
			o := s.run()
			return Outcome{Status: o.Status, StatusCode: o.StatusCode, Output: o.Output, Notes: o.Notes, ErrorMessage: o.ErrorMessage}
		}
		want := result(&simulation{sketch: sketch, t: t, draw: func(int) int { return 0 }})
		draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
		require.Empty(t, cmp.Diff(want, result(&simulation{sketch: sketch, t: t, restore: true, crash: true, draw: draw})))
	})
}

// TestEarlierTaskWinsWithoutEffects lets several ends and failures compete in
// graphs without effects: the outcome is that of the earliest that is reached.
func TestEarlierTaskWinsWithoutEffects(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sketch := drawSketch(t, 10, 3)
		for _, f := range sketch.fates {
			f.kind = "pure"
		}
		sketch.plan = sketch.compile(t)
		s := simulation{sketch: sketch, t: t}
		outcome := s.run()
		for i, task := range sketch.plan.Graph.Tasks {
			state := &s.state.Tasks[i]
			if state.ends(task) {
				require.Equal(t, state.End == nil || state.End.Failed, outcome.Status == StatusFailed)
				break
			}
		}
		for i := range s.state.Tasks {
			require.NotContains(t, []Status{StatusRunning, StatusCancelled, StatusWaiting}, s.state.Tasks[i].Status)
		}
	})
}

// TestResetRunsToTheEnd retries failed random executions: the second attempt
// ends, and what completed is not run again unless something before it was.
func TestResetRunsToTheEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sketch := drawSketch(t, 8, 2)
		draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
		s := simulation{sketch: sketch, t: t, draw: draw}
		s.run()
		before := statuses(sketch.plan, s.state)
		_, resumed, err := Reset(sketch.plan, s.state, nil)
		require.NoError(t, err)
		for id, status := range statuses(sketch.plan, s.state) {
			if slices.Contains(resumed, id) {
				require.Equal(t, StatusPending, status)
			} else {
				require.Equal(t, before[id], status)
			}
		}
		for _, f := range sketch.fates {
			f.fails, f.ends = 0, nil
		}
		s.running, s.begun = nil, map[int]bool{}
		event := event{Kind: eventStarted, At: s.at}
		for !s.state.Ended() {
			if actions := s.next(event); !s.state.Ended() {
				event = s.perform(actions)
			}
		}
		require.Equal(t, StatusCompleted, s.state.Status)
	})
}
