package workflow

import (
	"encoding/json"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"tranche/internal/expression"
)

// fastValidator recognises most values that match a schema in a small part of
// the time that the schema library takes, and without garbage. It never accepts
// a value that the library refuses. If it does not accept a value, the library
// decides and explains.
type fastValidator struct {
	types     jsonTypes
	allOf     []*fastValidator // the schemas of allOf and $ref
	allowed   []any            // of enum and const; only strings, booleans and null; nil: any value
	bounds    []numberBound
	length    lengthBound // of a string, in characters
	pattern   jsonschema.Regexp
	format    func(any) error
	itemCount lengthBound
	item      *fastValidator // of every item; nil: any value
	members   []memberValidator
	isClosed  bool // no other members are allowed
}

// jsonTypes are the types that a schema allows.
type jsonTypes struct {
	null, boolean, number, text, list, object bool
	// integersOnly allows only numbers that are written as integers.
	integersOnly bool
}

type memberValidator struct {
	name       string
	value      *fastValidator // nil: any value
	isRequired bool
}

// accepts reports that a value matches the schema. False means: ask the library.
// A nil validator accepts nothing.
func (f *fastValidator) accepts(v any) bool {
	if f == nil || f.format != nil && f.format(v) != nil || f.allowed != nil && !f.isAllowed(v) {
		return false
	}
	for _, part := range f.allOf {
		if !part.accepts(v) {
			return false
		}
	}
	switch v := v.(type) {
	case nil:
		return f.types.null
	case bool:
		return f.types.boolean
	case string:
		return f.types.text && f.length.holds(func() int { return utf8.RuneCountInString(v) }) && (f.pattern == nil || f.pattern.MatchString(v))
	case json.Number:
		return f.acceptsNumber(v)
	case []any:
		return f.acceptsList(v)
	case map[string]any:
		return f.acceptsObject(v)
	default:
		return false
	}
}

func (f *fastValidator) isAllowed(v any) bool {
	switch v.(type) {
	case nil, bool, string:
		return slices.Contains(f.allowed, v)
	default:
		return false
	}
}

func (f *fastValidator) acceptsNumber(v json.Number) bool {
	if !f.types.number || f.types.integersOnly && strings.Trim(string(v), "-0123456789") != "" {
		return false
	}
	for i := range f.bounds {
		if !f.bounds[i].holds(v) {
			return false
		}
	}
	return true
}

func (f *fastValidator) acceptsList(items []any) bool {
	if !f.types.list || !f.itemCount.holds(func() int { return len(items) }) {
		return false
	}
	for _, item := range items {
		if f.item != nil && !f.item.accepts(item) {
			return false
		}
	}
	return true
}

func (f *fastValidator) acceptsObject(object map[string]any) bool {
	if !f.types.object {
		return false
	}
	known := 0
	for i := range f.members {
		m := &f.members[i]
		value, present := object[m.name]
		switch {
		case present && m.value != nil && !m.value.accepts(value), !present && m.isRequired:
			return false
		case present:
			known++
		}
	}
	return !f.isClosed || known == len(object)
}

// lengthBound is the least and the greatest length; a negative one has no limit.
type lengthBound struct{ least, most int }

func newLengthBound(least, most *int) lengthBound {
	b := lengthBound{most: -1}
	if least != nil {
		b.least = *least
	}
	if most != nil {
		b.most = *most
	}
	return b
}

func (b lengthBound) holds(length func() int) bool {
	if b.least == 0 && b.most < 0 {
		return true
	}
	n := length()
	return n >= b.least && (b.most < 0 || n <= b.most)
}

// numberBound is a minimum (sign +1) or a maximum (sign -1).
type numberBound struct {
	bound     json.Number
	sign      int
	inclusive bool
}

func (b *numberBound) holds(v any) bool {
	order, err := expression.Compare(v, b.bound)
	return err == nil && (order*b.sign > 0 || order == 0 && b.inclusive)
}

// understood are the fields of the library's schema that validatorBuilder
// reads, and those of keywords that refuse no value.
const understood = `DraftVersion Location Bool ID Ref Anchor Types Enum Const AllOf Format Required Properties AdditionalProperties
 MinItems MaxItems Items Items2020 MinLength MaxLength Pattern Maximum Minimum ExclusiveMaximum ExclusiveMinimum
 Title Description Default Comment ReadOnly WriteOnly Examples Deprecated`

// validatorBuilder builds the validators of a schema and of its subschemas.
type validatorBuilder struct {
	built map[*jsonschema.Schema]*fastValidator // schemas may refer to themselves
	// unsupported is set if a schema has a keyword that only the library understands.
	unsupported bool
}

// newFastValidator returns nil for a schema with a keyword that only the
// library understands.
func newFastValidator(s *jsonschema.Schema) *fastValidator {
	b := validatorBuilder{built: map[*jsonschema.Schema]*fastValidator{}}
	f := b.build(s)
	if b.unsupported {
		return nil
	}
	return f
}

func (b *validatorBuilder) build(s *jsonschema.Schema) *fastValidator {
	if s == nil {
		return nil
	}
	if f, ok := b.built[s]; ok {
		return f
	}
	f := &fastValidator{length: newLengthBound(s.MinLength, s.MaxLength), itemCount: newLengthBound(s.MinItems, s.MaxItems), pattern: s.Pattern}
	b.built[s] = f
	fields, names := reflect.ValueOf(s).Elem(), strings.Fields(understood)
	for i := range fields.NumField() {
		if field := fields.Type().Field(i); field.IsExported() && !fields.Field(i).IsZero() && !slices.Contains(names, field.Name) {
			b.unsupported = true
		}
	}
	if s.Bool == nil || *s.Bool { // the schema false allows no type
		f.types = typesOf(s.Types)
	}
	if s.Format != nil {
		f.format = s.Format.Validate
	}
	f.allowed = allowedValues(s)
	b.addBounds(f, s)
	b.addItems(f, s)
	b.addMembers(f, s)
	if s.Ref != nil {
		f.allOf = append(f.allOf, b.build(s.Ref))
	}
	for _, part := range s.AllOf {
		f.allOf = append(f.allOf, b.build(part))
	}
	return f
}

func typesOf(types *jsonschema.Types) jsonTypes {
	if types == nil || types.IsEmpty() {
		return jsonTypes{null: true, boolean: true, number: true, text: true, list: true, object: true}
	}
	names := types.ToStrings()
	has := func(name string) bool { return slices.Contains(names, name) }
	return jsonTypes{
		null: has("null"), boolean: has("boolean"), text: has("string"), list: has("array"), object: has("object"),
		number: has("number") || has("integer"), integersOnly: has("integer") && !has("number"),
	}
}

// allowedValues returns the strings, booleans and null of enum or const; nil if
// the schema has neither. The library decides on other values, and if the schema
// has both keywords.
func allowedValues(s *jsonschema.Schema) []any {
	var values []any
	switch {
	case s.Const == nil && s.Enum == nil:
		return nil
	case s.Const != nil && s.Enum != nil:
		return []any{}
	case s.Const != nil:
		values = []any{*s.Const}
	default:
		values = slices.Clone(s.Enum.Values)
	}
	return slices.DeleteFunc(values, func(v any) bool {
		switch v.(type) {
		case nil, bool, string:
			return false
		default:
			return true
		}
	})
}

func (b *validatorBuilder) addBounds(f *fastValidator, s *jsonschema.Schema) {
	for _, k := range []struct {
		bound     *big.Rat
		sign      int
		inclusive bool
	}{{s.Minimum, +1, true}, {s.ExclusiveMinimum, +1, false}, {s.Maximum, -1, true}, {s.ExclusiveMaximum, -1, false}} {
		if k.bound == nil {
			continue
		}
		digits, exact := k.bound.FloatPrec()
		if !exact || digits > boundDigitsMax || k.bound.Num().BitLen() > 64 {
			b.unsupported = true
			continue
		}
		f.bounds = append(f.bounds, numberBound{json.Number(k.bound.FloatString(digits)), k.sign, k.inclusive})
	}
}

func (b *validatorBuilder) addItems(f *fastValidator, s *jsonschema.Schema) {
	switch items := s.Items.(type) {
	case nil:
		f.item = b.build(s.Items2020)
	case *jsonschema.Schema:
		f.item = b.build(items)
	default:
		b.unsupported = true
	}
}

func (b *validatorBuilder) addMembers(f *fastValidator, s *jsonschema.Schema) {
	switch others := s.AdditionalProperties.(type) {
	case nil:
	case bool:
		f.isClosed = !others
	default:
		f.isClosed = true // the library checks the other members
	}
	for name, property := range s.Properties {
		f.members = append(f.members, memberValidator{name, b.build(property), slices.Contains(s.Required, name)})
	}
	for _, name := range s.Required {
		if _, listed := s.Properties[name]; !listed {
			f.members = append(f.members, memberValidator{name, nil, true})
			b.unsupported = b.unsupported || s.AdditionalProperties != nil
		}
	}
}
