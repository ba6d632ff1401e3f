package workflow

import (
	"maps"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// applicationsMax bounds how many ways lead through a schema: references that
// share references would otherwise make validation exponential in the
// schema's size.
const applicationsMax = 100_000

// schemaWalk looks at every schema that a schema is made of.
type schemaWalk struct {
	ways     map[*jsonschema.Schema]int // from a schema to any within it; 0 while it is being walked
	defaults bool                       // whether any has a default
}

// visit returns the number of ways from s, at most applicationsMax+1.
func (w *schemaWalk) visit(s *jsonschema.Schema) int {
	if s == nil {
		return 0
	}
	if ways, seen := w.ways[s]; seen {
		return ways
	}
	w.ways[s] = 0
	w.defaults = w.defaults || s.Default != nil
	ways := 1
	for _, inner := range within(s) {
		ways = min(ways+w.visit(inner), applicationsMax+1)
	}
	w.ways[s] = ways
	return ways
}

// endless reports whether s, or any schema that the walk has visited, applies
// itself again to the same value: nothing can match it.
func (w *schemaWalk) endless() bool {
	const entered, left = 1, 2
	marks := map[*jsonschema.Schema]int{}
	var enter func(s *jsonschema.Schema) bool
	enter = func(s *jsonschema.Schema) bool {
		if s == nil || marks[s] == left {
			return false
		}
		if marks[s] == entered {
			return true
		}
		marks[s] = entered
		if slices.ContainsFunc(besides(s), enter) {
			return true
		}
		marks[s] = left
		return false
	}
	for s := range w.ways {
		if enter(s) {
			return true
		}
	}
	return false
}

// within lists the schemas that s applies, nils among them.
func within(s *jsonschema.Schema) []*jsonschema.Schema {
	list := append(besides(s), s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema)
	list = append(list, s.PrefixItems...)
	list = slices.AppendSeq(list, maps.Values(s.Properties))
	list = slices.AppendSeq(list, maps.Values(s.PatternProperties))
	for _, either := range []any{s.AdditionalProperties, s.AdditionalItems, s.Items} {
		switch inner := either.(type) {
		case *jsonschema.Schema:
			list = append(list, inner)
		case []*jsonschema.Schema:
			list = append(list, inner...)
		}
	}
	return list
}

// besides lists the schemas that s applies to the value that it is itself
// applied to, nils among them.
func besides(s *jsonschema.Schema) []*jsonschema.Schema {
	list := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else}
	if s.DynamicRef != nil {
		list = append(list, s.DynamicRef.Ref)
	}
	list = slices.Concat(list, s.AllOf, s.AnyOf, s.OneOf)
	list = slices.AppendSeq(list, maps.Values(s.DependentSchemas))
	for _, dependency := range s.Dependencies {
		if inner, isSchema := dependency.(*jsonschema.Schema); isSchema {
			list = append(list, inner)
		}
	}
	return list
}
