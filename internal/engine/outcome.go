package engine

import (
	"tranche/internal/fault"
	"tranche/internal/workflow"
)

// Outcome is how an execution ended.
type Outcome struct {
	Status     Status // completed, failed, timeout or cancelled
	StatusCode int    // decisions 5.2
	SubCode    fault.SubCode
	// Output is never nil; CustomOutput is nil where there is none.
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
