// Package workflow is a workflow's definition: its structure, which is checked
// at every write, and the plan it is compiled into when it is published, with
// every fault of the graph reported at once. Everything in it is pure: it must
// know neither database, HTTP nor clock, and no task type, which are passed in.
//
// The rules are those of contract 3 to 5.
package workflow

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"tranche/internal/fault"
)

// Limits of a definition.
const (
	TasksMax = 500  // of a graph
	edgesMax = 2000 // of a graph
	nameMax  = 200  // bytes of a task's name
)

// Start is the source of the edges that lead into a graph.
const Start = "start"

// idPattern is contract 4.1.
var idPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// Definition is a workflow as its author wrote it. It is well-formed but may be
// incomplete.
type Definition struct {
	InputSchema    map[string]any
	Tasks          []TaskDefinition
	Edges          []EdgeDefinition
	ExecutionMode  Mode // unset: as the graph asks
	TimeoutSeconds int  // 0: the default of the mode
}

// TaskDefinition is one task of a definition; Name is the id if none was given.
type TaskDefinition struct {
	ID, Type, Name string
	Config         map[string]any
}

// EdgeDefinition says that Target can follow Source, a task's id or Start.
type EdgeDefinition struct {
	Source, Target string
}

// Parse checks the structure and the types of a definition. Every write must pass it, also
// that of an incomplete draft. Details have paths as the caller wrote them. If the type of
// a task is known, Parse checks the types of its config's members too. Compile reports an
// unknown type. A nil argument is an absent member; nil types leave the configs unread.
// The caller sets ExecutionMode and TimeoutSeconds, which Compile checks.
func Parse(inputSchema, tasks, edges any, types map[string]TaskType) (Definition, []fault.Detail) {
	s := structure{}
	def := Definition{
		InputSchema: map[string]any{"type": "object"},
		Tasks:       s.tasks("tasks", tasks),
		Edges:       s.edges("edges", edges),
	}
	if inputSchema != nil {
		def.InputSchema = s.object("inputSchema", inputSchema)
	}
	if types == nil {
		return def, s.details
	}
	// The compiler finds wrong types in configs. A draft may have all other faults.
	c := compiler{types: types, ids: map[string]string{}, isDraft: true}
	c.graph("", def.Tasks, def.Edges, nil)
	return def, append(s.details, c.faults...)
}

// structure reads the parts of a definition and collects the malformed ones.
type structure struct{ details []fault.Detail }

func (s *structure) fault(path string, code fault.SubCode, format string, args ...any) {
	s.details = append(s.details, fault.Detail{Field: path, Message: fmt.Sprintf(format, args...), SubCode: code})
}

func (s *structure) tasks(path string, v any) []TaskDefinition {
	items := s.array(path, v, TasksMax)
	tasks := make([]TaskDefinition, 0, len(items))
	for i, item := range items {
		at := fmt.Sprintf("%s[%d]", path, i)
		members := s.object(at, item)
		if members == nil {
			tasks = append(tasks, TaskDefinition{}) // the positions after it stay right
			continue
		}
		task := TaskDefinition{
			ID:     s.text(at, members, "id", true),
			Type:   s.text(at, members, "type", true),
			Name:   s.text(at, members, "name", false),
			Config: map[string]any{},
		}
		if config := members["config"]; config != nil {
			task.Config = s.object(at+".config", config)
		}
		if task.ID != "" && !idPattern.MatchString(task.ID) {
			s.fault(at+".id", "", "must match %s", idPattern)
		}
		switch {
		case len(task.Name) > nameMax:
			s.fault(at+".name", "", "must have at most %d bytes", nameMax)
		case task.Name != "" && strings.TrimSpace(task.Name) == "":
			s.fault(at+".name", "", "must not be blank")
		}
		if task.Name == "" {
			task.Name = task.ID
		}
		s.known(at, members, "id", "type", "name", "config")
		tasks = append(tasks, task)
	}
	return tasks
}

func (s *structure) edges(path string, v any) []EdgeDefinition {
	items := s.array(path, v, edgesMax)
	edges := make([]EdgeDefinition, 0, len(items))
	for i, item := range items {
		at := fmt.Sprintf("%s[%d]", path, i)
		members := s.object(at, item)
		if members == nil {
			edges = append(edges, EdgeDefinition{})
			continue
		}
		edges = append(edges, EdgeDefinition{
			Source: s.text(at, members, "source", true),
			Target: s.text(at, members, "target", true),
		})
		s.known(at, members, "source", "target")
	}
	return edges
}

func (s *structure) array(path string, v any, most int) []any {
	if v == nil {
		return nil
	}
	items, ok := v.([]any)
	if !ok {
		s.fault(path, fault.InvalidFieldType, "must be an array")
	}
	if len(items) > most {
		s.fault(path, "", "must have at most %d items", most)
		return nil
	}
	return items
}

func (s *structure) object(path string, v any) map[string]any {
	members, ok := v.(map[string]any)
	if !ok {
		s.fault(path, fault.InvalidFieldType, "must be an object")
	}
	return members
}

func (s *structure) text(path string, members map[string]any, name string, required bool) string {
	v, present := members[name]
	text, ok := v.(string)
	switch {
	case present && v != nil && !ok:
		s.fault(path+"."+name, fault.InvalidFieldType, "must be a text")
	case required && text == "":
		s.fault(path+"."+name, fault.MissingRequiredField, "is required")
	}
	return text
}

func (s *structure) known(path string, members map[string]any, names ...string) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(names, name) {
			s.fault(path+"."+name, "", "is not a known property; remove it or correct its name")
		}
	}
}
