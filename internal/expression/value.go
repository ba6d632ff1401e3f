package expression

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"tranche/internal/exactjson"
)

// While an expression is evaluated a value is one of package exactjson, a
// *number (computed or literal) or a time.Time. Lists and objects hold
// exactjson values only, so that they can be handed out as they are.

// kind names the type of a value for people.
func kind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case string:
		return "text"
	case *number, json.Number:
		return "a number"
	case time.Time:
		return "a date"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	default:
		return "not a JSON value"
	}
}

// typeName names the type of a value as JSON Schema does.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case *number, json.Number:
		return "number"
	case time.Time:
		return "date"
	case []any:
		return "array"
	default:
		return "object"
	}
}

// seal turns a value into an exactjson value.
func seal(v any) any {
	switch v := v.(type) {
	case *number:
		return json.Number(v.String())
	case time.Time:
		return exactjson.FormatTime(v)
	default:
		return v
	}
}

// equal compares by value. It costs steps for every element compared.
func (r *run) equal(a, b any) (bool, error) {
	switch a := a.(type) {
	case nil:
		return b == nil, nil
	case bool:
		other, ok := b.(bool)
		return ok && a == other, nil
	case string:
		if other, ok := b.(string); ok {
			return a == other, r.scan(min(len(a), len(other)))
		}
		_, isTime := b.(time.Time)
		return isTime && sameTime(b, a), nil
	case time.Time:
		return sameTime(a, b), nil
	case []any:
		other, ok := b.([]any)
		return r.equalLists(a, other, ok)
	case map[string]any:
		other, ok := b.(map[string]any)
		return r.equalObjects(a, other, ok)
	}
	x, isNumber := r.number(a)
	y, other := r.number(b)
	return isNumber && other && x.cmp(y) == 0, nil
}

func sameTime(a, b any) bool {
	x, ok := ToTime(a)
	y, other := ToTime(b)
	return ok && other && x.Equal(y)
}

func (r *run) equalLists(a, b []any, ok bool) (bool, error) {
	if !ok || len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if err := r.step(1); err != nil {
			return false, err
		}
		if same, err := r.equal(a[i], b[i]); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (r *run) equalObjects(a, b map[string]any, ok bool) (bool, error) {
	if !ok || len(a) != len(b) {
		return false, nil
	}
	for name, v := range a {
		if err := r.step(1); err != nil {
			return false, err
		}
		other, present := b[name]
		if !present {
			return false, nil
		}
		if same, err := r.equal(v, other); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

// compare orders two numbers, two texts or two dates. One of two dates may be a text.
func (r *run) compare(a, b any) (int, error) {
	if x, ok := r.number(a); ok {
		if y, ok := r.number(b); ok {
			return x.cmp(y), nil
		}
		return 0, errNotOrdered
	}
	x, isText := a.(string)
	y, otherText := b.(string)
	if isText && otherText {
		return strings.Compare(x, y), r.scan(min(len(x), len(y)))
	}
	_, isTime := a.(time.Time)
	_, otherTime := b.(time.Time)
	if !isTime && !otherTime {
		return 0, errNotOrdered
	}
	from, ok := ToTime(a)
	to, other := ToTime(b)
	if !ok || !other {
		return 0, errNotOrdered
	}
	return from.Compare(to), nil
}

const errNotOrdered problem = "only two numbers, two texts or two dates can be compared"

// valueBytes is the cost of every value in a result. It bounds the time of visiting many
// small values.
const valueBytes = 8

// measure checks that v, written as JSON, nests no deeper than exactjson reads
// and takes at most about limit bytes; it returns how many it counted. Parts
// that occur several times count each time, as they are written each time.
func measure(v any, depth, limit int) (int, error) {
	size := valueBytes
	switch v := v.(type) {
	case string:
		size += len(v)
	case json.Number:
		size += len(v)
	case []any:
		for _, item := range v {
			n, err := measurePart(item, depth, limit-size)
			if err != nil {
				return 0, err
			}
			size += n
		}
	case map[string]any:
		for name, member := range v {
			size += len(name)
			n, err := measurePart(member, depth, limit-size)
			if err != nil {
				return 0, err
			}
			size += n
		}
	}
	if size > limit {
		return 0, errMemory
	}
	return size, nil
}

func measurePart(v any, depth, limit int) (int, error) {
	if depth >= exactjson.DepthMax {
		return 0, problemf("the result is nested deeper than %d levels", exactjson.DepthMax)
	}
	if limit < 0 {
		return 0, errMemory
	}
	return measure(v, depth+1, limit)
}

// write returns the JSON text of a value.
func (r *run) write(v any) (string, error) {
	v = seal(v)
	size, err := measure(v, 0, r.memory)
	if err != nil {
		return "", err
	}
	if err := r.grow(size); err != nil {
		return "", err
	}
	if err := r.step(size / hashBytesPerStep); err != nil {
		return "", err
	}
	text, err := exactjson.Encode(v)
	if err != nil {
		return "", problem("the value cannot be written as JSON")
	}
	return string(text), nil
}

// show returns the text of a value inside other text: null is empty, lists and objects are
// JSON.
func (r *run) show(v any) (string, error) {
	switch v := seal(v).(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case json.Number:
		return string(v), nil
	default:
		return r.write(v)
	}
}

// canonical returns a text that is the same for equal values only.
func (r *run) canonical(v any) (string, error) {
	if n, ok := toNumber(v); ok {
		return (&number{dec: n.dec}).String(), nil
	}
	switch v := v.(type) {
	case []any:
		return r.canonicalList(v)
	case map[string]any:
		names := make([]any, 0, len(v))
		for _, name := range sortedKeys(v) {
			names = append(names, name, v[name])
		}
		text, err := r.canonicalList(names)
		return "{" + text, err
	default:
		return r.write(v)
	}
}

func (r *run) canonicalList(items []any) (string, error) {
	if err := r.list(len(items)); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, item := range items {
		text, err := r.canonical(item)
		if err != nil {
			return "", err
		}
		if err := r.text(len(text) + 1); err != nil {
			return "", err
		}
		b.WriteString(text)
		b.WriteByte(',')
	}
	return "[" + b.String() + "]", nil
}

func sortedKeys(object map[string]any) []string { return slices.Sorted(maps.Keys(object)) }
