// Package workflow is a workflow's definition: its structure, which is checked
// at every write, and the plan it is compiled into when it is published, with
// every fault of the graph reported at once. Everything in it is pure: it must
// know neither database, HTTP nor clock, and no task type, which are passed in.
//
// The rules are those of decisions 3 to 5.
package workflow

import (
	"tranche/internal/fault"
)

// Definition is what a caller wrote, well-formed but perhaps incomplete.
type Definition struct {
	InputSchema    map[string]any
	Tasks          []TaskDefinition
	Edges          []EdgeDefinition
	ExecutionMode  Mode // unset: as the graph asks
	TimeoutSeconds int  // 0: the default of the mode
}

// TaskDefinition is one task of a definition; Name is the id where none was given.
type TaskDefinition struct {
	ID, Type, Name string
	Config         map[string]any
}

// EdgeDefinition says that Target can follow Source, a task's id or Start.
type EdgeDefinition struct {
	Source, Target string
}

// Start is the source of the edges that lead into a graph.
const Start = "start"

// Parse checks structure and types: what must hold at every write, also of a
// draft that is still incomplete. Details have paths as the caller wrote them.
// Of tasks whose type is known, the types of the config's members are checked
// too; an unknown type is a fault of the graph, which Compile reports. A nil
// argument is an absent member. The caller sets ExecutionMode and
// TimeoutSeconds, which Compile checks.
func Parse(inputSchema, tasks, edges any, types map[string]TaskType) (Definition, []fault.Detail) {
	return Definition{}, nil
}

// Compile checks the whole graph and builds its plan. The error is a
// *fault.Error of kind Unprocessable with every fault of the definition; if a
// cycle is among them its sub-code is CircularDependency.
func Compile(def Definition, types map[string]TaskType) (*Plan, error) {
	return &Plan{}, nil
}

// CheckInput fills in the schema's defaults and validates. It returns the
// filled input, or details with paths from the input (items[3].amount), sorted.
// The input itself is not changed.
func (p *Plan) CheckInput(input map[string]any) (map[string]any, []fault.Detail) {
	return input, nil
}

type inputSchema struct{}
