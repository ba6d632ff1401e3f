package engine

import (
	"slices"
	"strings"
)

// again gives an execution that has ended another attempt if it can have one, and
// holds what the attempt keeps and what it does anew (contract 5.7 and 6.9).
func (r *trial) again(state *State) bool {
	before := r.load()
	isWhole := state.Status != StatusCompleted
	if !isWhole && !r.outcome.SourceFailed {
		return false
	}
	var skip []string
	if isWhole {
		for _, task := range r.plan.Graph.Tasks {
			if r.hash("skip", task.ID, r.attempt)%8 == 0 {
				skip = append(skip, task.ID)
			}
		}
		skipped, resumed, err := Reset(r.plan, state, skip)
		if err != nil || slices.ContainsFunc(skipped, func(id string) bool { return !slices.Contains(skip, id) || slices.Contains(resumed, id) }) {
			r.fault("reset but %v: %v, %v, %v", skip, skipped, resumed, err)
		}
	} else {
		ResetSources(r.plan, state)
	}
	after := newHeld()
	resets, first := r.resets(before, isWhole)
	for i, again := range resets {
		id := r.plan.Graph.Tasks[i].ID
		fresh := TaskState{Status: StatusPending, Skip: again && slices.Contains(skip, id), Later: again && !isWhole && !first[i]}
		r.holdReset(id, &before.Tasks[i], &state.Tasks[i], again, fresh)
		after.skipped[id] = again && slices.Contains(skip, id)
	}
	after.retired = r.held.retired
	for path, key := range r.held.keys {
		isOver := strings.HasPrefix(r.held.decided[path], string(StatusCompleted)) || strings.HasPrefix(r.held.decided[path], string(StatusFailed))
		switch {
		case r.held.answers[key] && isOver:
			after.retired[key] = true
		case !r.held.answers[key] && !strings.Contains(path, "."):
			after.keys[path] = key // what got no answer is called under the same key
		}
	}
	r.attempt, r.held = r.attempt+1, after
	if state.Attempt != r.attempt || state.Status != StatusPending {
		r.fault("attempt %d of the execution is number %d and %s", r.attempt, state.Attempt, state.Status)
	}
	r.store(state)
	return true
}

// resets says which tasks of the execution's graph another attempt does anew: in
// a retry of the whole all that did not complete, else the sources that failed
// and what was broken off; with them every end and whatever follows. Those sources
// come first, and what leads to them.
func (r *trial) resets(state *State, isWhole bool) (again, first []bool) {
	again, first = make([]bool, len(state.Tasks)), make([]bool, len(state.Tasks))
	var reset, lead func(i int)
	reset = func(i int) {
		if again[i] {
			return
		}
		again[i] = true
		for _, target := range r.plan.Graph.Tasks[i].Targets {
			reset(target)
		}
	}
	lead = func(i int) {
		first[i] = true
		for _, source := range r.plan.Graph.Tasks[i].Sources {
			lead(source)
		}
	}
	failedEnd := slices.ContainsFunc(state.Tasks, func(t TaskState) bool { return t.End != nil && t.End.Failed })
	for i, task := range r.plan.Graph.Tasks {
		t, made := &state.Tasks[i], r.specs[task.ID]
		var keeps bool
		switch t.Status {
		case StatusCompleted:
			keeps = t.End == nil
		case StatusSkipped:
			keeps = !t.Skip
		case StatusFailed:
			keeps = !isWhole && made.onError != "fail"
		default:
		}
		if !isWhole && (sourceFailed(t) || t.Status == StatusFailed && made.isSource && made.onError == "continue") {
			lead(i)
			keeps = false
		}
		if !keeps || isWhole && failedEnd {
			reset(i)
		}
	}
	return again, first
}

// sourceFailed reports whether a data source failed in the runs of a task.
func sourceFailed(t *TaskState) bool { return t.Nested != nil && t.Nested.total().SourceFailed }

// holdReset holds what a retry makes of one task: fresh, but for what it remembers.
func (r *trial) holdReset(id string, before, after *TaskState, again bool, fresh TaskState) {
	if !again {
		if plain(before) != plain(after) {
			r.fault("task %s was to be kept: %s became %s", id, plain(before), plain(after))
		}
		return
	}
	fresh.KeyAttempt, fresh.Nested = after.KeyAttempt, after.Nested
	if plain(fresh) != plain(after) || after.Nested != nil && before.Status == StatusCompleted {
		r.fault("task %s was to be reset: %s became %s", id, plain(before), plain(after))
	}
	if after.Nested == nil {
		return
	}
	for i, frame := range after.Nested.Frames {
		if was := before.Nested.Frames[i]; was.Status == StatusCompleted && plain(was) != plain(frame) {
			r.fault("run %d of task %s was to be kept: %s became %s", i, id, plain(was), plain(frame))
		}
	}
}
