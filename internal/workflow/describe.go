package workflow

import (
	"slices"

	"tranche/internal/expression"
)

// The languages of texts in a config.
const (
	LanguageExpression = "expression"
	LanguageTemplate   = "template"
)

// ConfigSchema is the JSON Schema of a task type's config, or of a part of it,
// as the type's own Compile reads it.
type ConfigSchema struct {
	Type             string // of JSON; empty for any
	Language         string // of the text, or of the texts in it; empty for literal ones
	Description      string
	Enum             []string
	Minimum, Maximum *float64
	Items            *ConfigSchema
	Properties       map[string]*ConfigSchema
	Required         []string
	// Open says that the names of the members are the author's own.
	Open bool
}

// Describe returns the schema of a type's config. Members that every config may
// have are included.
func Describe(t TaskType) *ConfigSchema {
	c := &compiler{types: map[string]TaskType{}, ids: map[string]string{}}
	b := &graphBuilder{compiler: c, graph: &Graph{Tasks: []*Task{{}}, indexes: map[string]int{}}, edges: map[[2]int]int{}}
	config := &taskConfig{compiler: c, graph: b, task: b.graph.Tasks[0], timeout: taskTimeoutMax}
	schema := &ConfigSchema{Type: "object"}
	config.root = config.sketch("config", schema, expression.Scope{})
	t.Compile(config.root)
	config.common()
	return schema
}

func (t *taskConfig) sketch(path string, schema *ConfigSchema, scope expression.Scope) *ConfigReader {
	r := t.reader(path, map[string]any{}, scope)
	r.sketch = schema
	return r
}

// Describing reports whether the reader describes the type. The type must then read every
// alternative of its config.
func (c *ConfigReader) Describing() bool { return c.sketch != nil }

// note notes a member of a sketch. What was noted first stays, unless it says
// nothing.
func (c *ConfigReader) note(name string, schema ConfigSchema) *ConfigSchema {
	if c.sketch == nil {
		return nil
	}
	if known := c.sketch.Properties[name]; known != nil && (known.Type != "" || known.Language != "") {
		return known
	}
	if c.sketch.Properties == nil {
		c.sketch.Properties = map[string]*ConfigSchema{}
	}
	c.sketch.Properties[name] = &schema
	return &schema
}

func (s *ConfigSchema) require(names []string) {
	for _, name := range names {
		if !slices.Contains(s.Required, name) {
			s.Required = append(s.Required, name)
		}
	}
}
