package api

import (
	"maps"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"tranche/internal/task"
	"tranche/internal/workflow"
)

// taskConfigs adds the schema of the config of every task type to the components, and a
// map from type to schema to WorkflowTask. The schemas are derived from the code that
// decodes and validates configs.
func (s *Server) taskConfigs() {
	registry := s.http.Schemas()
	definition, found := registry.Map()["WorkflowTask"]
	if !found {
		return
	}
	configs := map[string]any{}
	schemas := task.Describe()
	for _, kind := range slices.Sorted(maps.Keys(schemas)) {
		name := configName(kind)
		registry.Map()[name] = configSchema(schemas[kind])
		configs[kind] = map[string]string{"$ref": "#/components/schemas/" + name}
	}
	definition.Extensions = map[string]any{"x-config-by-type": configs}
}

// configName returns the component of a type: HttpRequestConfig for http-request.
func configName(kind string) string {
	var name strings.Builder
	for word := range strings.SplitSeq(kind, "-") {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return name.String() + "Config"
}

func configSchema(c *workflow.ConfigSchema) *huma.Schema {
	schema := &huma.Schema{Type: c.Type, Description: c.Description, Required: c.Required, Minimum: c.Minimum, Maximum: c.Maximum}
	for _, value := range c.Enum {
		schema.Enum = append(schema.Enum, value)
	}
	if c.Language != "" {
		schema.Extensions = map[string]any{"x-language": c.Language}
	}
	switch {
	case c.Items != nil:
		schema.Items = configSchema(c.Items)
	case c.Type == huma.TypeArray:
		schema.Items = &huma.Schema{}
	}
	if c.Type == huma.TypeObject {
		schema.AdditionalProperties = c.Open
		schema.Properties = map[string]*huma.Schema{}
		for name, property := range c.Properties {
			schema.Properties[name] = configSchema(property)
		}
	}
	return schema
}
