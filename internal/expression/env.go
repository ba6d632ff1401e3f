package expression

import "time"

// Scope says which roots an expression may use beyond input, tasks, execution
// and custom.
type Scope struct {
	Item   bool // item and index: inside for-each
	Last   bool // last and index: inside a loop
	Column bool // $ is the value of a decision table's column
	Fields bool // $.name is another field of a transform
}

// Env is what one evaluation sees. Values are exactjson values; a nil member
// reads as null. Evaluation changes none of them, and results may share parts
// with them, so that neither may be changed afterwards.
type Env struct {
	Input     any
	Custom    any
	Item      any
	Index     int
	Last      any
	Column    any
	Fields    map[string]any
	Tasks     map[string]any // by task id: {"output", "status", "error"}
	Execution map[string]any
	// Now is what now() gives: the time the task or iteration began.
	Now time.Time
	// ExecutionID and Path name the task's run; uuid() derives from them.
	ExecutionID string
	Path        string
	// CallbackURL gives the address at which the wait of a task is answered;
	// nil where there is none.
	CallbackURL func(taskID string) (string, error)
}
