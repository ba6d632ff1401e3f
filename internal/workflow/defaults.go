package workflow

import (
	"maps"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"tranche/internal/exactjson"
)

// filledMax bounds the defaults filled into one input: a schema that refers to
// itself can ask for more than its size shows.
const filledMax = 10_000

// filler adds a schema's defaults to a value. It follows only keywords that always apply:
// properties, items, $ref and allOf, but not the alternatives of anyOf.
type filler struct{ filled int }

func (f *filler) over() bool { return f.filled > filledMax }

// fill returns the value with defaults, and whether any were added. It copies the objects
// that it changes.
func (f *filler) fill(s *jsonschema.Schema, value any, depth int) (any, bool) {
	if s == nil || depth > exactjson.DepthMax || f.over() {
		return value, false
	}
	added := false
	follow := func(result any, more bool) { value, added = result, added || more }
	switch v := value.(type) {
	case map[string]any:
		follow(f.object(s, v, depth))
	case []any:
		follow(f.array(s, v, depth))
	default:
		return value, false
	}
	follow(f.fill(s.Ref, value, depth+1))
	for _, part := range s.AllOf {
		follow(f.fill(part, value, depth+1))
	}
	return value, added
}

func (f *filler) object(s *jsonschema.Schema, object map[string]any, depth int) (any, bool) {
	result, copied := object, false
	set := func(name string, value any) {
		if !copied {
			result, copied = maps.Clone(object), true
		}
		result[name] = value
	}
	for name, property := range s.Properties {
		value, present := object[name]
		if given := defaultOf(property); !present && given != nil {
			f.filled++
			value, _ = f.fill(property, *given, depth+1)
			set(name, value)
		} else if filled, added := f.fill(property, value, depth+1); added {
			set(name, filled)
		}
	}
	others, _ := s.AdditionalProperties.(*jsonschema.Schema)
	for name, value := range object {
		if _, named := s.Properties[name]; named || others == nil {
			continue
		}
		if filled, added := f.fill(others, value, depth+1); added {
			set(name, filled)
		}
	}
	return result, copied
}

func (f *filler) array(s *jsonschema.Schema, items []any, depth int) (any, bool) {
	result, copied := items, false
	for i, item := range items {
		filled, added := f.fill(itemSchema(s, i), item, depth+1)
		if !added {
			continue
		}
		if !copied {
			result, copied = slices.Clone(items), true
		}
		result[i] = filled
	}
	return result, copied
}

// itemSchema is the schema of an array's item, in 2020-12 or draft-07.
func itemSchema(s *jsonschema.Schema, i int) *jsonschema.Schema {
	if i < len(s.PrefixItems) {
		return s.PrefixItems[i]
	}
	switch items := s.Items.(type) {
	case *jsonschema.Schema:
		return items
	case []*jsonschema.Schema:
		if i < len(items) {
			return items[i]
		}
		rest, _ := s.AdditionalItems.(*jsonschema.Schema)
		return rest
	}
	return s.Items2020
}

// defaultOf returns the default of a property: its own, or that of the schema it refers
// to. It returns nil if there is none.
func defaultOf(s *jsonschema.Schema) *any {
	for range exactjson.DepthMax {
		if s == nil {
			return nil
		}
		if s.Default != nil {
			return s.Default
		}
		s = s.Ref
	}
	return nil
}
