package expression

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"tranche/internal/exactjson"
)

// Scope says which roots an expression may use beyond input, tasks, execution
// and custom.
type Scope struct {
	Item   bool // item and index: inside for-each
	Last   bool // last and index: inside a loop
	Column bool // $ is the value of a decision table's column
	Fields bool // $.name is another field of a transform
}

// Env holds the values that one evaluation sees. They are exactjson values, and a nil
// member reads as null. Evaluation changes none of them. Results may share parts with
// them, so neither may be changed afterwards.
type Env struct {
	Input     any
	Custom    any
	Item      any
	Index     int
	Last      any
	Column    any
	Fields    map[string]any
	Tasks     map[string]Task // by id, those that are decided
	Execution *Execution
	// Now is the value of now(): the time when the task or iteration began.
	Now time.Time
	// ExecutionID and Path name the task's run; uuid() derives from them.
	ExecutionID string
	Path        string
	// CallbackURL returns the address that answers the wait of a task; nil if there is
	// none.
	CallbackURL func(taskID string) (string, error)
}

// Task is another task as expressions see it.
type Task struct {
	Output any
	Status string
	Error  map[string]any // nil: none
}

// Member returns output, status or error; nil for any other name, and of a task
// that is not decided.
func (t Task) Member(name string) any {
	switch {
	case t.Status == "":
		return nil
	case name == "output":
		return t.Output
	case name == "status":
		return t.Status
	case name == "error":
		return asObject(t.Error)
	default:
		return nil
	}
}

// Value returns the object of all members; nil if Member returns nothing.
func (t Task) Value() any {
	if t.Status == "" {
		return nil
	}
	return members(taskMembers, t.Member)
}

// Execution is the execution as expressions see it (contract 4.7).
type Execution struct {
	ID         string
	CreatedAt  time.Time
	Attempt    int
	BorrowerID *string
	IsTest     bool
}

// Member returns the member of that name; nil for any other name, and where
// there is no execution.
func (e *Execution) Member(name string) any {
	switch {
	case e == nil:
		return nil
	case name == "id":
		return e.ID
	case name == "createdAt":
		return exactjson.FormatTime(e.CreatedAt)
	case name == "attempt":
		return json.Number(strconv.Itoa(e.Attempt))
	case name == "borrowerId" && e.BorrowerID != nil:
		return *e.BorrowerID
	case name == "isTest":
		return e.IsTest
	default:
		return nil
	}
}

// Value returns the object of all members; nil if Member returns nothing.
func (e *Execution) Value() any {
	if e == nil {
		return nil
	}
	return members(executionMembers, e.Member)
}

func members(names string, member func(string) any) map[string]any {
	object := map[string]any{}
	for name := range strings.FieldsSeq(names) {
		object[name] = member(name)
	}
	return object
}
