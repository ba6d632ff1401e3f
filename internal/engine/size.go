package engine

import (
	"encoding/json"
	"fmt"

	"tranche/internal/exactjson"
	"tranche/internal/workflow"
)

const (
	// stateBytesMax bounds the results of an execution's tasks together, in bytes of JSON.
	// Each single result is bounded by its evaluation or its response. This limit bounds
	// the memory and the storage of a graph with many tasks.
	stateBytesMax = 16 << 20
	// All results are measured when as many bytes have come in as they were before,
	// but neither for fewer than measureLeast nor only after measureMost.
	measureLeast = 64 << 10
	measureMost  = stateBytesMax / 8
)

// bound turns the completion of a task into a failure if its result nests too deep, or if
// all results together become too large. Results that the state has dropped, such as those
// of earlier iterations of a loop, do not count.
func (d *drive) bound(event *event) {
	if event.Kind != eventCompleted {
		return
	}
	if end := event.Result.End; exactjson.IsTooDeep(event.Result.Output) || end != nil && exactjson.IsTooDeep(end.CustomOutput) {
		event.Kind = eventFailed
		event.Err = &workflow.TaskError{
			Code:    workflow.CodeTooLarge,
			Message: fmt.Sprintf("the result is nested deeper than %d levels", exactjson.DepthMax),
		}
		return
	}
	came := sizeOf(event.Result.Output)
	d.unmeasured += came
	d.heaviest = max(d.heaviest, d.measured+d.unmeasured)
	if d.unmeasured < min(max(d.measured, measureLeast), measureMost) {
		return
	}
	d.measured, d.unmeasured = sizeOfTasks(d.run.State.Tasks)+came, 0
	if d.measured <= stateBytesMax {
		return
	}
	event.Kind = eventFailed
	event.Err = &workflow.TaskError{
		Code:    workflow.CodeTooLarge,
		Message: fmt.Sprintf("the results of the execution together exceed %d MiB", stateBytesMax>>20),
	}
	d.unmeasured = measureMost // until something is dropped, the next one is too many too
}

func sizeOfTasks(tasks []TaskState) (bytes int) {
	for i := range tasks {
		t := &tasks[i]
		bytes += sizeOf(t.Output)
		if t.End != nil {
			bytes += sizeOf(t.End.CustomOutput)
		}
		if t.Nested == nil {
			continue
		}
		bytes += sizeOf(t.Nested.Last)
		for _, frame := range t.Nested.Frames {
			bytes += sizeOf(frame.Output) + sizeOfTasks(frame.Tasks)
		}
	}
	return bytes
}

// sizeOf is about the length of a value as JSON.
func sizeOf(value any) (bytes int) {
	switch value := value.(type) {
	case string:
		return len(value) + 2
	case json.Number:
		return len(value)
	case []any:
		for _, item := range value {
			bytes += sizeOf(item) + 1
		}
	case map[string]any:
		for name, member := range value {
			bytes += len(name) + sizeOf(member) + 4
		}
	}
	return bytes + 4
}
