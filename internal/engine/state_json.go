package engine

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// A state is stored as the JSON of its type. Most executions complete, and a
// completed state is only read, so its stored form leaves out everything that
// can be derived. That is two thirds of the text:
//
//   - of the execution: its id (the id of its row), its status, its deadline,
//     attempt 1, and an end at the time of the start;
//   - of a task that completed at its first attempt: status and attempt, a start
//     at the time when the previous task ended, and an end at the time of the start;
//   - of the end task: the output, which is stored in the execution's result.
//
// A stored state without a status is in this form.

// JSON returns the stored form of the state.
func (s *State) JSON() ([]byte, error) {
	if s.Status != StatusCompleted || s.CompletedAt.IsZero() {
		return json.Marshal(s)
	}
	stored := *s
	stored.ExecutionID, stored.Status, stored.Deadline = "", "", time.Time{}
	if s.Attempt == 1 {
		stored.Attempt = 0
	}
	stored.CompletedAt = omitEqual(s.CompletedAt, s.StartedAt)
	stored.Tasks = omitDerived(s.Tasks, s.StartedAt)
	for i := range stored.Tasks {
		if t := &stored.Tasks[i]; &s.Tasks[i] == s.endTask() && hasMembers(t.Output) {
			t.Output = nil
		}
	}
	return json.Marshal(&stored)
}

// UnmarshalJSON reads both forms. It keeps the text of numbers, which
// encoding/json alone would turn into floats.
func (s *State) UnmarshalJSON(text []byte) error {
	type plain State
	s.Attempt, s.Status, s.Tasks = 1, "", nil
	s.Pins = maps.Clone(s.Pins) // the plan shares its map with all states
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode((*plain)(s)); err != nil {
		return err
	}
	if s.Status == "" {
		s.Status = StatusCompleted
		if s.CompletedAt.IsZero() {
			s.CompletedAt = s.StartedAt
		}
		deriveOmitted(s.Tasks, s.StartedAt)
	}
	return nil
}

// RestoreOutput sets the output of the end task, which JSON leaves out, to the
// output of the execution's result.
func (s *State) RestoreOutput(output map[string]any) {
	if t := s.endTask(); t != nil && t.Output == nil && len(output) > 0 {
		t.Output = output
	}
}

// endTask returns the task that ended a completed execution, nil if there is none.
func (s *State) endTask() *TaskState {
	for i := range s.Tasks {
		if t := &s.Tasks[i]; t.End != nil && s.Status == StatusCompleted {
			return t
		}
	}
	return nil
}

// omitDerived returns the tasks of a graph without the values that
// deriveOmitted restores. The tasks themselves stay as they are.
func omitDerived(tasks []TaskState, graphStartedAt time.Time) []TaskState {
	stored, previousEnd := slices.Clone(tasks), graphStartedAt
	for i := range stored {
		t := &stored[i]
		if t.Status == StatusCompleted && t.Attempt == 1 && !t.StartedAt.IsZero() && !t.CompletedAt.IsZero() {
			t.Status, t.Attempt = "", 0
			t.StartedAt = omitEqual(tasks[i].StartedAt, previousEnd)
			t.CompletedAt = omitEqual(tasks[i].CompletedAt, tasks[i].StartedAt)
			previousEnd = tasks[i].CompletedAt
		}
		if t.Nested == nil {
			continue
		}
		nested := *t.Nested
		nested.Frames = slices.Clone(nested.Frames)
		for j, frame := range nested.Frames {
			short := *frame
			short.Tasks = omitDerived(frame.Tasks, frame.StartedAt)
			nested.Frames[j] = &short
		}
		t.Nested = &nested
	}
	return stored
}

// deriveOmitted restores the values that omitDerived left out.
func deriveOmitted(tasks []TaskState, graphStartedAt time.Time) {
	previousEnd := graphStartedAt
	for i := range tasks {
		t := &tasks[i]
		if t.Status == "" {
			t.Status, t.Attempt = StatusCompleted, 1
			if t.StartedAt.IsZero() {
				t.StartedAt = previousEnd
			}
			if t.CompletedAt.IsZero() {
				t.CompletedAt = t.StartedAt
			}
			previousEnd = t.CompletedAt
		}
		if t.Nested != nil {
			for _, frame := range t.Nested.Frames {
				deriveOmitted(frame.Tasks, frame.StartedAt)
			}
		}
	}
}

// omitEqual returns the zero time if at is the time that a reader derives.
func omitEqual(at, derived time.Time) time.Time {
	if at.Equal(derived) {
		return time.Time{}
	}
	return at
}

func hasMembers(value any) bool {
	object, _ := value.(map[string]any)
	return len(object) > 0
}
