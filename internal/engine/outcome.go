package engine

import (
	"fmt"

	"tranche/internal/fault"
	"tranche/internal/workflow"
)

// The statusCodes of results that no end task chose (contract 5.2).
const (
	statusCodeCompleted = 200
	statusCodeOwn       = 422 // by the workflow's own doing
	statusCodeInternal  = 500
	statusCodeExternal  = 502 // by an external service
	statusCodeTimeout   = 504
)

// Outcome is how an execution ended.
type Outcome struct {
	Status     Status // completed, failed, timeout or cancelled
	StatusCode int    // contract 5.2
	SubCode    fault.SubCode
	// Output is never nil; CustomOutput is nil if there is none.
	Output         map[string]any
	CustomOutput   any
	Notes          []string
	Notices        []workflow.Notice
	Tags           []string
	ErrorMessage   string // empty: none
	Attachments    []workflow.Attachment
	TasksCompleted int
	TasksFailed    int
	// SourceFailed reports that a task that reads a data source failed and the
	// execution went on (onError continue).
	SourceFailed bool
}

// CancelledOutcome is that of an execution that was cancelled before it began.
func CancelledOutcome() *Outcome {
	return &Outcome{Status: StatusCancelled, StatusCode: statusCodeInternal, Output: map[string]any{}, ErrorMessage: ErrCancelled.Error()}
}

// conclude is the outcome of a state that has ended.
func conclude(plan *workflow.Plan, state *State) *Outcome {
	o := &Outcome{Status: state.Status}
	for i, task := range plan.Graph.Tasks {
		o.count(task, &state.Tasks[i])
	}
	last := decisive(plan.Graph, state.Tasks)
	switch {
	case state.Status == StatusTimeout:
		o.StatusCode, o.SubCode = statusCodeTimeout, fault.ExecutionTimeout
		o.ErrorMessage = fmt.Sprintf("the execution exceeded its time limit of %s", plan.Timeout)
	case state.Status == StatusCancelled:
		unbegun := CancelledOutcome()
		o.StatusCode, o.ErrorMessage = unbegun.StatusCode, unbegun.ErrorMessage
	case last < 0:
		o.StatusCode, o.Output = statusCodeCompleted, results(plan.Graph, state.Tasks)
	case state.Tasks[last].End != nil:
		o.end(plan.Graph.Tasks[last], &state.Tasks[last])
	default:
		o.fail(plan.Graph.Tasks[last], state.Tasks[last].Error)
	}
	if o.Output == nil {
		o.Output = map[string]any{}
	}
	return o
}

// count adds one task to the counters, those of its ended nested runs included,
// and, if its failure was handled, a notice, which is the last one then.
func (o *Outcome) count(task *workflow.Task, t *TaskState) (noticed bool) {
	if t.Nested != nil {
		inner := t.Nested.total()
		o.TasksCompleted += inner.TasksCompleted
		o.TasksFailed += inner.TasksFailed
		o.SourceFailed = o.SourceFailed || inner.SourceFailed
		o.Notices = append(o.Notices, inner.Notices...)
	}
	switch t.Status {
	case StatusCompleted:
		o.TasksCompleted++
	case StatusFailed:
		o.TasksFailed++
		if task.OnError.Mode == workflow.ErrorFail {
			return false
		}
		o.SourceFailed = o.SourceFailed || task.Source != "" && task.OnError.Mode == workflow.ErrorContinue
		o.Notices = append(o.Notices, workflow.Notice{
			Code: t.Error.Code, Level: workflow.LevelWarning, Message: t.Error.Message,
			TaskID: task.ID, Source: task.Source, CreatedAt: t.CompletedAt,
		})
		return true
	default:
	}
	return false
}

func (o *Outcome) end(task *workflow.Task, t *TaskState) {
	end := t.End
	o.StatusCode = end.StatusCode
	if o.StatusCode == 0 {
		o.StatusCode = statusCodeCompleted
		if end.Failed {
			o.StatusCode = statusCodeOwn
		}
	}
	if output, ok := t.Output.(map[string]any); ok && output != nil {
		o.Output = output
	}
	o.CustomOutput, o.Notes, o.Tags = end.CustomOutput, end.Notes, end.Tags
	o.ErrorMessage, o.Attachments = end.ErrorMessage, end.Attachments
	for _, notice := range end.Notices {
		notice.TaskID, notice.CreatedAt = task.ID, t.CompletedAt
		o.Notices = append(o.Notices, notice)
	}
}

func (o *Outcome) fail(task *workflow.Task, err *workflow.TaskError) {
	o.ErrorMessage = fmt.Sprintf("task %s failed: %s", task.ID, err.Message)
	switch err.Code {
	case workflow.CodeExternalService, workflow.CodeTaskTimeout:
		o.StatusCode, o.SubCode = statusCodeExternal, fault.ExternalServiceError
	case workflow.CodeInternal:
		o.StatusCode = statusCodeInternal
	default:
		o.StatusCode = statusCodeOwn
	}
}

// results is the output of a graph that reached no end (contract 4.9).
func results(graph *workflow.Graph, tasks []TaskState) map[string]any {
	byID := map[string]any{}
	last := 0
	for i, task := range graph.Tasks {
		if len(task.Targets) > 0 {
			continue
		}
		last++
		if t := &tasks[i]; t.Status != StatusSkipped {
			byID[task.ID] = t.Output
		}
	}
	if last == 1 {
		for _, result := range byID {
			if object, ok := result.(map[string]any); ok {
				return object
			}
		}
	}
	return byID
}
