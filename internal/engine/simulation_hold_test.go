package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/internal/workflow"
)

// promptly is how late an undisturbed trial may do what it can do at once.
const promptly = 10 * time.Millisecond

// held is what a trial has seen and holds later states and effects to.
type held struct {
	decided map[string]string    // what is durable of tasks that are over, by path
	begun   map[string]time.Time // startedAt of tasks of which it is durable
	began   map[string]int       // the last attempt of effects, by path
	failed  map[string]time.Time // when attempts failed, by path and attempt
	lasts   map[string]string    // what last was to tasks
	keys    map[string]string    // of effects, by path
	answers map[string]bool      // keys of calls that were answered
	retired map[string]bool      // keys of answered calls of earlier attempts of the execution
	skipped map[string]bool      // tasks that a retry is to pass over
}

func newHeld() held {
	return held{
		decided: map[string]string{}, begun: map[string]time.Time{}, began: map[string]int{}, failed: map[string]time.Time{},
		lasts: map[string]string{}, keys: map[string]string{}, answers: map[string]bool{}, retired: map[string]bool{}, skipped: map[string]bool{},
	}
}

func nth(path string, attempt int) string { return fmt.Sprint(path, "#", attempt) }

// holdState checks the invariants of every stored state.
func (r *trial) holdState(state *State) {
	r.each(state, func(v visited) {
		t := v.state()
		r.holdDecided(v.path, t)
		if before := r.held.begun[v.path]; !before.IsZero() && !before.Equal(t.StartedAt) {
			r.fault("task %s began at %s and at %s", v.path, before, t.StartedAt)
		}
		r.held.begun[v.path] = t.StartedAt
		if v.open && !state.StartedAt.IsZero() {
			r.holdOrder(&v)
			if r.chance == nil && r.attempt == 1 {
				r.holdPrompt(&v)
			}
		}
		if t.Nested != nil {
			r.holdRuns(&v)
		}
	})
}

// holdDecided checks that a task that is over does not change.
func (r *trial) holdDecided(path string, t *TaskState) {
	switch t.Status {
	case StatusCompleted, StatusSkipped, StatusFailed:
	default:
		if before, known := r.held.decided[path]; known {
			r.fault("task %s was over as %s and is %s", path, before, t.Status)
		}
		return
	}
	now := fmt.Sprint(t.Status, t.Attempt, t.StartedAt, t.CompletedAt)
	if before, known := r.held.decided[path]; known && before != now {
		r.fault("task %s was over as %s and is %s", path, before, now)
	}
	r.held.decided[path] = now
}

// holdOrder holds that a task of a graph that goes on begins if and only if what
// leads to it is decided and leads to it.
func (r *trial) holdOrder(v *visited) {
	t, task, made := v.state(), v.graph.Tasks[v.index], r.specs[v.graph.Tasks[v.index].ID]
	ready, begins, statuses := true, made.isEntry, map[string]Status{}
	for _, id := range made.sources {
		source, _ := v.graph.Index(id)
		before := &v.tasks[source]
		ready = ready && r.isDecided(before, id)
		begins = begins || slices.Contains(before.Taken, v.index)
		statuses[id] = before.Status
	}
	switch t.Status {
	case StatusPending:
		if ready != t.Ready && !t.Later {
			r.fault("task %s is pending and ready: %t, though what leads to it is decided: %t", v.path, t.Ready, ready)
		}
		return
	case StatusCancelled, StatusTimeout:
		r.fault("task %s is %s though its graph goes on", v.path, t.Status)
	default:
	}
	isPassed := begins && (t.Skip || made.when == "false" || made.when != "" && statuses[made.when] != StatusCompleted)
	if _, elsewhere := statuses[made.when]; made.when != "" && made.when != "false" && !elsewhere {
		isPassed = begins && t.Status == StatusSkipped // by the status of a task of a graph around
	}
	if !ready || (t.Status == StatusSkipped) != (!begins || isPassed) {
		r.fault("task %s is %s, what leads to it is decided: %t, and leads to it: %t", v.path, t.Status, ready, begins)
	}
	if r.isDecided(t, task.ID) {
		var taken []string
		for _, target := range t.Taken {
			taken = append(taken, v.graph.Tasks[target].ID)
		}
		want := made.taken(t.Status, begins, r.chosen(v.path))
		slices.Sort(taken)
		if slices.Sort(want); !slices.Equal(taken, want) {
			r.fault("task %s, %s, takes %v instead of %v", v.path, t.Status, taken, want)
		}
	}
}

// isDecided reports whether a task is over and does not end its graph.
func (r *trial) isDecided(t *TaskState, id string) bool {
	switch t.Status {
	case StatusCompleted, StatusSkipped:
		return t.End == nil
	case StatusFailed:
		return r.specs[id].onError != "fail"
	default:
		return false
	}
}

// holdPrompt checks that an undisturbed task does not wait without need.
func (r *trial) holdPrompt(v *visited) {
	t, made := v.state(), r.specOf(v.path)
	if t.Attempt == 0 {
		return
	}
	ready := v.began
	for _, id := range made.sources {
		source, _ := v.graph.Index(id)
		if at := v.tasks[source].CompletedAt; at.After(ready) {
			ready = at
		}
	}
	if t.StartedAt.Sub(ready) > promptly {
		r.fault("task %s began at %s, not at %s", v.path, t.StartedAt, ready)
	}
	over := t.CompletedAt.Sub(t.StartedAt)
	switch {
	case t.CompletedAt.IsZero():
	case made.kind == "pause" && t.Status == StatusCompleted && (over < made.delay || over > made.delay+promptly),
		made.kind == "wait" && t.Status == StatusFailed && (over < made.limit || over > made.limit+promptly):
		r.fault("%s took %s", v.path, over)
	case made.kind == "wait" && made.limit == 0:
		if comes, _ := r.signalTime(v.path); t.CompletedAt.Before(comes) || t.CompletedAt.Sub(later(comes, t.StartedAt)) > signalPoll+promptly {
			r.fault("the signal for %s came at %s and was taken at %s", v.path, comes, t.CompletedAt)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// holdRuns holds that a task's nested runs are as many as they are to be.
func (r *trial) holdRuns(v *visited) {
	t, made := v.state(), r.specOf(v.path)
	n := t.Nested
	var open []int
	for i, frame := range n.Frames {
		if frame.Status == StatusRunning {
			open = append(open, frame.Index)
		}
		if made.kind == "each" && frame.Index != i {
			r.fault("run %d of %s is at the place of run %d", frame.Index, v.path, i)
		}
		if isOver := t.Status != StatusRunning && t.Status != StatusCompleted; frame.Status == StatusFailed && !made.goesOn && !isOver {
			r.fault("run %d of %s failed, and the task is %s", frame.Index, v.path, t.Status)
		}
	}
	if !slices.Equal(open, n.Open) {
		r.fault("the runs %v of %s go on, not %v", open, v.path, n.Open)
	}
	var wrong bool
	switch made.kind {
	case "each":
		isOn := v.open && t.Status == StatusRunning && n.Phase == PhaseRuns
		wrong = len(open) > made.parallel || n.Next > made.items || len(n.Frames) != n.Next ||
			isOn && (n.Count != made.items || len(open) < min(made.parallel, n.Count) && n.Next < n.Count)
	case "loop":
		wrong = n.Next > min(made.most, made.until+1) || len(n.Frames) > 1 || len(n.Frames) == 1 && n.Frames[0].Index != n.Next-1
		r.holdPause(v, n)
	case "sub":
		wrong = n.Next != 1 || len(n.Frames) != 1
	}
	if wrong {
		r.fault("%s, %s, of %d items or %d iterations, has begun %d runs, keeps %d, and %v go on", v.path, t.Status, made.items, made.most, n.Next, len(n.Frames), open)
	}
}

// holdPause checks that the iterations of a loop keep their distance.
func (r *trial) holdPause(v *visited, n *Nested) {
	for _, frame := range n.Frames {
		if sum := r.specOf(v.path).delay * time.Duration(frame.Index); r.attempt == 1 && frame.StartedAt.Sub(v.state().StartedAt) < sum {
			r.fault("iteration %d of %s began at %s", frame.Index, v.path, frame.StartedAt)
		}
		run := fmt.Sprintf("%s[%d]", v.path, frame.Index)
		if frame.Status == StatusCompleted {
			r.held.begun[run+" over"] = frame.CompletedAt
		}
		before := r.held.begun[fmt.Sprintf("%s[%d] over", v.path, frame.Index-1)]
		distance, delay := frame.StartedAt.Sub(before), r.specOf(v.path).delay
		if !before.IsZero() && (distance < delay || r.chance == nil && r.attempt == 1 && distance > delay+promptly) {
			r.fault("%s began %s after the one before it", run, distance)
		}
	}
}

// takeTime runs an effect of the trial. It checks the invariants before the effect begins,
// and then waits for the effect's duration.
func (r *trial) takeTime(ctx context.Context, call *workflow.Call) error {
	if ctx.Err() != nil {
		return ctx.Err() // it was stopped before it could begin
	}
	r.holdBegin(call)
	select {
	case <-time.After(r.takes(call.Env.Path, call.Attempt)):
	case <-ctx.Done():
		return ctx.Err()
	}
	if runs := r.runs(call); ctx.Err() == nil && !runs {
		r.fault("effect %s goes on though its run was stopped", call.Env.Path)
	}
	return ctx.Err()
}

// holdWaited holds that a delay that is over was durable while it lasted, it or
// another that ended at the same moment.
func (r *trial) holdWaited(call *workflow.Call, until time.Time) {
	found := false
	r.each(r.load(), func(v visited) {
		t := v.state()
		found = found || v.path == call.Env.Path && t.StartedAt.Equal(call.Env.Now) || t.WakeAt.Equal(until)
	})
	if !found {
		r.fault("%s waited, and no durable state says so", call.Env.Path)
	}
}

// runs reports whether the durable state says that the call is under way.
func (r *trial) runs(call *workflow.Call) (found bool) {
	r.each(r.load(), func(v visited) {
		t := v.state()
		found = found || v.path == call.Env.Path && v.open && t.Status == StatusRunning && t.Attempt == call.Attempt && t.StartedAt.Equal(call.Env.Now)
	})
	return found
}

// holdBegin checks the invariants at the begin of an effect.
func (r *trial) holdBegin(call *workflow.Call) {
	if !r.runs(call) {
		r.fault("attempt %d of effect %s began before the state that says so was durable", call.Attempt, call.Env.Path)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	made, h := r.specOf(call.Env.Path), &r.held
	if outermost, _, _ := strings.Cut(call.Env.Path, "."); h.skipped[strings.Split(outermost, "[")[0]] {
		r.fault("effect %s is passed over and began", call.Env.Path)
	}
	if before, known := h.keys[call.Env.Path]; known && before != call.IdempotencyKey() {
		r.fault("the key of %s was %s and is %s", call.Env.Path, before, call.IdempotencyKey())
	}
	plainKey := "e1/" + call.Env.Path
	suffix, isOurs := strings.CutPrefix(call.IdempotencyKey(), plainKey)
	if n, err := strconv.Atoi(strings.TrimPrefix(suffix, "/")); !isOurs || suffix != "" && (err != nil || n < 2 || n > r.attempt) {
		r.fault("the key of %s is %s", call.Env.Path, call.IdempotencyKey())
	}
	if h.retired[call.IdempotencyKey()] {
		r.fault("the key %s got its answer in an earlier attempt", call.IdempotencyKey())
	}
	h.keys[call.Env.Path] = call.IdempotencyKey()
	h.began[call.Env.Path] = call.Attempt
	if call.Attempt == 1 {
		return
	}
	failed, hasFailed := h.failed[nth(call.Env.Path, call.Attempt-1)]
	if !hasFailed || call.Attempt > tries {
		r.fault("attempt %d of effect %s began, and the one before has not failed", call.Attempt, call.Env.Path)
	}
	// The delay doubles, and a fifth of it is left to chance.
	delay := made.delay << (call.Attempt - 2)
	if waited := call.At.Sub(failed); waited < delay*4/5 || r.chance == nil && waited > delay+promptly {
		r.fault("attempt %d of effect %s began %s after the one before it failed", call.Attempt, call.Env.Path, waited)
	}
}

// holdSight checks that the expressions of a call see their own run.
func (r *trial) holdSight(call *workflow.Call) {
	index, item := 0, any(nil)
	runs := strings.Split(call.Env.Path, ".")
	for _, run := range runs[:len(runs)-1] {
		id, at, _ := strings.Cut(strings.TrimSuffix(run, "]"), "[")
		switch r.specs[id].kind {
		case "each":
			index, _ = strconv.Atoi(at)
			item = index + 1
		case "loop":
			index, _ = strconv.Atoi(at)
		default:
			index, item = 0, nil
		}
	}
	if call.Env.Index != index || fmt.Sprint(call.Env.Item) != fmt.Sprint(item) {
		r.fault("task %s sees index %d and item %v", call.Env.Path, call.Env.Index, call.Env.Item)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held.lasts[call.Env.Path] = plain(call.Env.Last)
}

// note keeps what a call was answered.
func (r *trial) note(call *workflow.Call, err *workflow.TaskError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.held.failed[nth(call.Env.Path, call.Attempt)] = time.Now()
	}
	if err == nil || err.StatusCode != 0 {
		r.held.answers[call.IdempotencyKey()] = true
	}
}

// holdEnd checks the invariants of an execution that has ended.
func (r *trial) holdEnd(state *State) {
	if r.outcome.Status != state.Status {
		r.fault("the outcome is %s, the state %s", r.outcome.Status, state.Status)
	}
	r.each(state, func(v visited) {
		if t := v.state(); t.Ready || t.Status == StatusRunning || t.Status == StatusWaiting {
			r.fault("task %s is %s though the execution has ended", v.path, t.Status)
		}
	})
	isEnder := func(task *workflow.Task) bool {
		t := &state.Tasks[task.Index]
		return t.End != nil || t.Status == StatusFailed && r.specs[task.ID].onError == "fail"
	}
	want := StatusCompleted
	if first := slices.IndexFunc(r.plan.Graph.Tasks, isEnder); first >= 0 {
		if end := state.Tasks[first].End; end == nil || end.Failed {
			want = StatusFailed
		}
	} else if i := slices.IndexFunc(r.plan.Graph.Tasks, func(task *workflow.Task) bool { return !r.isDecided(&state.Tasks[task.Index], task.ID) }); i >= 0 {
		want = StatusCancelled // or it must not have ended
	}
	if isCancelled := state.Status == StatusCancelled && !r.calm && r.chance != nil; state.Status != want && !isCancelled {
		r.fault("the execution is %s instead of %s", state.Status, want)
	}
}
