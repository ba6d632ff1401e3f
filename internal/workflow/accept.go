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

// acceptor tells of nearly every value that matches a schema that it does, in
// a small part of the library's time and without garbage. The library has the
// last word on what it does not accept, and says what is wrong with it.
type acceptor struct {
	// The kinds of values that the schema takes; isWhole: no numbers but integers
	// written as such.
	null, boolean, number, text, list, object, isWhole bool

	among    []any // if not nil: texts, booleans and null, one of which it must be
	also     []*acceptor
	bounds   []numberBound
	length   lengthBound // of a text, in characters
	items    lengthBound
	item     *acceptor // of every item; nil: any
	pattern  jsonschema.Regexp
	format   func(any) error
	members  []memberAcceptor
	isClosed bool // whether there may be no other members
}

type memberAcceptor struct {
	name       string
	value      *acceptor // nil: any
	isRequired bool
}

// lengthBound holds lengths to least and, unless it is negative, most.
type lengthBound struct{ least, most int }

func (b lengthBound) holds(length func() int) bool {
	if b.least == 0 && b.most < 0 {
		return true
	}
	n := length()
	return n >= b.least && (b.most < 0 || n <= b.most)
}

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

// numberBound holds numbers to a side of a bound: the sign of the comparison
// with it, 0 where the bound itself is allowed too.
type numberBound struct {
	bound     any
	side      int
	orEqualTo bool
}

func (b *numberBound) holds(v any) bool {
	order, err := expression.Compare(v, b.bound)
	return err == nil && (order*b.side > 0 || order == 0 && b.orEqualTo)
}

// acceptors makes those of a schema and of all within it.
type acceptors struct {
	made map[*jsonschema.Schema]*acceptor
	// unknown is set when a schema has a keyword that no acceptor knows.
	unknown bool
}

// newAcceptor returns nil for a schema that the library alone understands.
func newAcceptor(s *jsonschema.Schema) *acceptor {
	all := acceptors{made: map[*jsonschema.Schema]*acceptor{}}
	a := all.of(s)
	if all.unknown {
		return nil
	}
	return a
}

// known are the members of the library's schema that of reads, and those that
// refuse no value.
const known = `DraftVersion Location Bool ID Ref Anchor Types Enum Const AllOf Format Required Properties AdditionalProperties
 MinItems MaxItems Items Items2020 MinLength MaxLength Pattern Maximum Minimum ExclusiveMaximum ExclusiveMinimum
 Title Description Default Comment ReadOnly WriteOnly Examples Deprecated`

func (all *acceptors) of(s *jsonschema.Schema) *acceptor {
	if s == nil {
		return nil
	}
	if a, ok := all.made[s]; ok {
		return a
	}
	a := &acceptor{length: newLengthBound(s.MinLength, s.MaxLength), items: newLengthBound(s.MinItems, s.MaxItems), pattern: s.Pattern}
	all.made[s] = a
	members, names := reflect.ValueOf(s).Elem(), strings.Fields(known)
	for i := range members.NumField() {
		if field := members.Type().Field(i); field.IsExported() && !members.Field(i).IsZero() && !slices.Contains(names, field.Name) {
			all.unknown = true
		}
	}
	if s.Bool == nil || *s.Bool {
		a.take(s.Types)
	} // else it takes no kind of value
	a.restrict(s)
	all.bind(a, s)
	all.join(a, s)
	return a
}

func (a *acceptor) take(types *jsonschema.Types) {
	if types == nil || types.IsEmpty() {
		a.null, a.boolean, a.number, a.text, a.list, a.object = true, true, true, true, true, true
		return
	}
	for _, name := range types.ToStrings() {
		switch name {
		case "null":
			a.null = true
		case "boolean":
			a.boolean = true
		case "number":
			a.number = true
		case "integer":
			a.isWhole = true
		case "string":
			a.text = true
		case "array":
			a.list = true
		case "object":
			a.object = true
		}
	}
	a.isWhole = a.isWhole && !a.number
	a.number = a.number || a.isWhole
}

// restrict reads the format of texts and the values that are allowed.
func (a *acceptor) restrict(s *jsonschema.Schema) {
	if s.Format != nil {
		a.format = s.Format.Validate
	}
	var among []any
	switch {
	case s.Const != nil && s.Enum != nil:
		among = []any{} // the library knows
	case s.Const != nil:
		among = []any{*s.Const}
	case s.Enum != nil:
		among = s.Enum.Values
	default:
		return
	}
	a.among = slices.DeleteFunc(slices.Clone(among), func(v any) bool {
		switch v.(type) {
		case nil, bool, string:
			return false
		}
		return true
	})
}

// bind reads what numbers are held to.
func (all *acceptors) bind(a *acceptor, s *jsonschema.Schema) {
	for _, b := range []struct {
		bound     *big.Rat
		side      int
		orEqualTo bool
	}{{s.Minimum, +1, true}, {s.ExclusiveMinimum, +1, false}, {s.Maximum, -1, true}, {s.ExclusiveMaximum, -1, false}} {
		if b.bound == nil {
			continue
		}
		digits, exact := b.bound.FloatPrec()
		if !exact || digits > boundDigitsMax || b.bound.Num().BitLen() > 64 {
			all.unknown = true
			continue
		}
		a.bounds = append(a.bounds, numberBound{json.Number(b.bound.FloatString(digits)), b.side, b.orEqualTo})
	}
}

// join reads the schemas within s.
func (all *acceptors) join(a *acceptor, s *jsonschema.Schema) {
	if s.Ref != nil {
		a.also = append(a.also, all.of(s.Ref))
	}
	for _, part := range s.AllOf {
		a.also = append(a.also, all.of(part))
	}
	switch items := s.Items.(type) {
	case nil:
		a.item = all.of(s.Items2020)
	case *jsonschema.Schema:
		a.item = all.of(items)
	default:
		all.unknown = true
	}
	switch others := s.AdditionalProperties.(type) {
	case nil:
	case bool:
		a.isClosed = !others
	default:
		a.isClosed = true // the library looks at the others
	}
	for name, property := range s.Properties {
		a.members = append(a.members, memberAcceptor{name, all.of(property), slices.Contains(s.Required, name)})
	}
	for _, name := range s.Required {
		if _, named := s.Properties[name]; !named {
			a.members = append(a.members, memberAcceptor{name, nil, true})
			all.unknown = all.unknown || s.AdditionalProperties != nil
		}
	}
}

// accepts reports that a value matches; false leaves it open.
func (a *acceptor) accepts(v any) bool {
	if a == nil || a.format != nil && a.format(v) != nil || a.among != nil && !a.isAmong(v) {
		return false
	}
	for _, other := range a.also {
		if !other.accepts(v) {
			return false
		}
	}
	switch v := v.(type) {
	case nil:
		return a.null
	case bool:
		return a.boolean
	case string:
		return a.text && a.length.holds(func() int { return utf8.RuneCountInString(v) }) && (a.pattern == nil || a.pattern.MatchString(v))
	case json.Number:
		return a.acceptsNumber(v)
	case []any:
		return a.acceptsList(v)
	case map[string]any:
		return a.acceptsObject(v)
	default:
		return false
	}
}

func (a *acceptor) isAmong(v any) bool {
	switch v.(type) {
	case nil, bool, string:
		return slices.Contains(a.among, v)
	default:
		return false
	}
}

func (a *acceptor) acceptsNumber(v json.Number) bool {
	if !a.number || a.isWhole && strings.Trim(string(v), "-0123456789") != "" {
		return false
	}
	for i := range a.bounds {
		if !a.bounds[i].holds(v) {
			return false
		}
	}
	return true
}

func (a *acceptor) acceptsList(items []any) bool {
	if !a.list || !a.items.holds(func() int { return len(items) }) {
		return false
	}
	for _, item := range items {
		if a.item != nil && !a.item.accepts(item) {
			return false
		}
	}
	return true
}

func (a *acceptor) acceptsObject(object map[string]any) bool {
	if !a.object {
		return false
	}
	named := 0
	for i := range a.members {
		m := &a.members[i]
		value, present := object[m.name]
		switch {
		case present && m.value != nil && !m.value.accepts(value), !present && m.isRequired:
			return false
		case present:
			named++
		}
	}
	return !a.isClosed || named == len(object)
}
