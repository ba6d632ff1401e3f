package engine

import (
	"bytes"
	"encoding/json"
	"maps"
	"strconv"
	"time"

	"tranche/internal/exactjson"
	"tranche/internal/workflow"
)

// The JSON of a state is that of its type, unless the execution has completed: most
// do, and nothing goes on from there. Then what most have in common is left out,
// two thirds of the text:
//
//   - the execution's id, which is that of its row, its status, its deadline, and
//     its attempt if that is the first;
//   - of a task that completed at its first attempt, status and attempt;
//   - of that, too, when it began, if that was when the task before it ended, or
//     the execution began; and when it ended, if it took no time;
//   - the output that is the execution's, and so in its result.

// JSON is the stored form of the state. It is written for every execution and
// before every effect, and reflection takes several times as long.
func (s *State) JSON() ([]byte, error) {
	return exactjson.Build(func(dst []byte) ([]byte, error) {
		w := writer{text: dst}
		if s.Status == StatusCompleted && !s.CompletedAt.IsZero() {
			w.isShort, w.concluded = true, s.concluding()
		}
		w.state(s)
		return w.text, w.err
	})
}

// concluding is the end task that a completed execution ended with; nil for none.
func (s *State) concluding() *TaskState {
	for i := range s.Tasks {
		if t := &s.Tasks[i]; t.End != nil && s.Status == StatusCompleted {
			return t
		}
	}
	return nil
}

// Conclude gives the end task of a completed execution the output that JSON left
// out, which is that of the result.
func (s *State) Conclude(output map[string]any) {
	if t := s.concluding(); t != nil && t.Output == nil && len(output) > 0 {
		t.Output = output
	}
}

// UnmarshalJSON reads both forms. It keeps the text of numbers, which
// encoding/json alone would turn into floats.
func (s *State) UnmarshalJSON(text []byte) error {
	type plain State
	s.Attempt, s.Status, s.Tasks = 1, "", nil
	s.Pins = maps.Clone(s.Pins) // those of the plan, which other states share
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
		fillIn(s.Tasks, s.StartedAt)
	}
	return nil
}

// fillIn gives the tasks of a graph, which began at a time, what was left out.
func fillIn(tasks []TaskState, at time.Time) {
	for i := range tasks {
		t := &tasks[i]
		if t.Status == "" {
			t.Status, t.Attempt = StatusCompleted, 1
			t.StartedAt = orTime(t.StartedAt, at)
			t.CompletedAt = orTime(t.CompletedAt, t.StartedAt)
			at = t.CompletedAt
		}
		if t.Nested != nil {
			for _, frame := range t.Nested.Frames {
				fillIn(frame.Tasks, frame.StartedAt)
			}
		}
	}
}

func orTime(at, otherwise time.Time) time.Time {
	if at.IsZero() {
		return otherwise
	}
	return at
}

// writer appends objects. Its methods write a member, those that say so only
// where its value is not the empty one; err is the first error.
type writer struct {
	text    []byte
	err     error
	isShort bool // what is left out of a completed execution's state is,
	// and the output of this task.
	concluded *TaskState
	// last is the time that was written last, and where: tasks that wait for
	// nothing begin and end in the same millisecond.
	last             time.Time
	lastFrom, lastTo int
}

func (w *writer) name(name string) {
	if last := w.text[len(w.text)-1]; last != '{' {
		w.text = append(w.text, ',')
	}
	w.text = append(w.text, '"')
	w.text = append(w.text, name...)
	w.text = append(w.text, `":`...)
}

func (w *writer) append(v any) {
	text, err := exactjson.AppendHTML(w.text, v)
	if w.err == nil {
		w.err = err
	}
	if err == nil {
		w.text = text
	}
}

func (w *writer) string(name, value string) {
	w.name(name)
	w.text = exactjson.AppendHTMLText(w.text, value)
}

func (w *writer) integer(name string, value int) {
	w.name(name)
	w.text = strconv.AppendInt(w.text, int64(value), 10)
}

// count leaves out zero.
func (w *writer) count(name string, value int) {
	if value != 0 {
		w.integer(name, value)
	}
}

// flag leaves out false.
func (w *writer) flag(name string, value bool) {
	if value {
		w.name(name)
		w.text = append(w.text, "true"...)
	}
}

// time leaves out the zero time.
func (w *writer) time(name string, value time.Time) {
	if value.IsZero() {
		return
	}
	w.name(name)
	if value == w.last { //nolint:staticcheck // in the same zone, too
		w.text = append(w.text, w.text[w.lastFrom:w.lastTo]...)
		return
	}
	w.lastFrom = len(w.text)
	w.text = append(w.text, '"')
	text, err := value.AppendText(w.text)
	if w.err == nil {
		w.err = err
	}
	w.text = append(text, '"')
	w.last, w.lastTo = value, len(w.text)
}

// timeUnless leaves out the zero time and the one that is expected.
func (w *writer) timeUnless(name string, value, expected time.Time) {
	if value != expected {
		w.time(name, value)
	}
}

// value leaves out null.
func (w *writer) value(name string, value any) {
	if value != nil {
		w.name(name)
		w.append(value)
	}
}

// integers leaves out an empty list.
func (w *writer) integers(name string, values []int) {
	if len(values) == 0 {
		return
	}
	w.name(name)
	w.text = append(w.text, '[')
	for i, value := range values {
		if i > 0 {
			w.text = append(w.text, ',')
		}
		w.text = strconv.AppendInt(w.text, int64(value), 10)
	}
	w.text = append(w.text, ']')
}

// other writes what is rare, the way of encoding/json, where it is present.
func (w *writer) other(name string, isPresent bool, value any) {
	if !isPresent {
		return
	}
	text, err := json.Marshal(value)
	if w.err == nil {
		w.err = err
	}
	w.name(name)
	w.text = append(w.text, text...)
}

func (w *writer) state(s *State) {
	w.text = append(w.text, '{')
	if w.isShort {
		if s.Attempt != 1 {
			w.integer("attempt", s.Attempt)
		}
		w.time("startedAt", s.StartedAt)
		w.timeUnless("completedAt", s.CompletedAt, s.StartedAt)
	} else {
		w.string("executionId", s.ExecutionID)
		w.integer("attempt", s.Attempt)
		w.string("status", string(s.Status))
		w.time("startedAt", s.StartedAt)
		w.time("deadline", s.Deadline)
		w.time("completedAt", s.CompletedAt)
	}
	w.name("tasks")
	w.tasks(s.Tasks, s.StartedAt)
	w.other("pins", len(s.Pins) > 0, s.Pins)
	w.count("runs", s.Runs)
	w.text = append(w.text, '}')
}

// tasks writes those of a graph that began at a time.
func (w *writer) tasks(tasks []TaskState, at time.Time) {
	if tasks == nil {
		w.text = append(w.text, "null"...)
		return
	}
	w.text = append(w.text, '[')
	for i := range tasks {
		if i > 0 {
			w.text = append(w.text, ',')
		}
		at = w.task(&tasks[i], at)
	}
	w.text = append(w.text, ']')
}

// task returns when the next one has begun unless it says otherwise.
func (w *writer) task(t *TaskState, at time.Time) time.Time {
	isPlain := w.isShort && t.Status == StatusCompleted && t.Attempt == 1 && !t.StartedAt.IsZero() && !t.CompletedAt.IsZero()
	w.text = append(w.text, '{')
	if !isPlain {
		w.string("status", string(t.Status))
	}
	w.flag("ready", t.Ready)
	w.flag("admitted", t.Admitted)
	w.flag("skip", t.Skip)
	w.flag("later", t.Later)
	if isPlain {
		w.timeUnless("startedAt", t.StartedAt, at)
		w.timeUnless("completedAt", t.CompletedAt, t.StartedAt)
		at = t.CompletedAt
	} else {
		w.count("attempt", t.Attempt)
		w.time("startedAt", t.StartedAt)
		w.time("completedAt", t.CompletedAt)
	}
	w.time("wakeAt", t.WakeAt)
	if output, _ := t.Output.(map[string]any); t != w.concluded || len(output) == 0 {
		w.value("output", t.Output)
	}
	w.other("error", t.Error != nil, t.Error)
	w.end(t.End)
	w.integers("taken", t.Taken)
	w.flag("answered", t.Answered)
	w.count("keyAttempt", t.KeyAttempt)
	w.nested(t.Nested)
	w.text = append(w.text, '}')
	return at
}

func (w *writer) end(e *workflow.End) {
	if e == nil {
		return
	}
	w.name("end")
	w.text = append(w.text, '{')
	w.flag("failed", e.Failed)
	w.count("statusCode", e.StatusCode)
	w.value("customOutput", e.CustomOutput)
	w.other("notes", len(e.Notes) > 0, e.Notes)
	w.other("notices", len(e.Notices) > 0, e.Notices)
	w.other("tags", len(e.Tags) > 0, e.Tags)
	if e.ErrorMessage != "" {
		w.string("errorMessage", e.ErrorMessage)
	}
	w.other("attachments", len(e.Attachments) > 0, e.Attachments)
	w.text = append(w.text, '}')
}

func (w *writer) nested(n *Nested) {
	if n == nil {
		return
	}
	w.name("nested")
	w.text = append(w.text, '{')
	if n.Phase != PhaseRuns {
		w.string("phase", string(n.Phase))
	}
	w.count("count", n.Count)
	w.count("next", n.Next)
	w.integers("open", n.Open)
	if len(n.Frames) > 0 {
		w.name("frames")
		w.frames(n.Frames)
	}
	w.value("last", n.Last)
	w.time("limit", n.Limit)
	w.tally(&n.Tally)
	w.text = append(w.text, '}')
}

func (w *writer) frames(frames []*Frame) {
	w.text = append(w.text, '[')
	for i, f := range frames {
		if i > 0 {
			w.text = append(w.text, ',')
		}
		w.text = append(w.text, '{')
		w.integer("index", f.Index)
		w.string("status", string(f.Status))
		w.time("startedAt", f.StartedAt)
		w.time("completedAt", f.CompletedAt)
		if len(f.Tasks) > 0 {
			w.name("tasks")
			w.tasks(f.Tasks, f.StartedAt)
		}
		w.value("output", f.Output)
		w.other("error", f.Error != nil, f.Error)
		w.tally(&f.Tally)
		w.text = append(w.text, '}')
	}
	w.text = append(w.text, ']')
}

func (w *writer) tally(y *Tally) {
	w.other("tally", y.TasksCompleted != 0 || y.TasksFailed != 0 || y.SourceFailed || y.Notices != nil, y)
}
