package exactjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// copyAbove is the length of a text above which its strings and numbers are
// copies. Those of a shorter text share its memory, which saves an allocation each.
const copyAbove = 4 << 10

// Decode reads exactly one JSON value. Errors are *Error.
func Decode(text []byte) (any, error) {
	r := newReader(text)
	value, err := r.value(0)
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return nil, err
	}
	return value, nil
}

// Members calls yield with each member of a JSON object in the order of the
// text: its name, and its value as it is written. Each value may nest DepthMax
// levels of its own. Members returns the error of yield; all other errors are *Error.
func Members(object []byte, yield func(name string, value []byte) error) error {
	r := newReader(object)
	if r.peek() != '{' {
		return &Error{Message: "must be a JSON object"}
	}
	var stopped error
	seen := names{}
	fault := r.members(0, func(name string) *Error {
		if err := seen.add(name); err != nil {
			return err
		}
		r.peek() // passes over the white space before the value
		begin := r.at
		if _, err := r.value(0); err != nil { // stored results wrap values of DepthMax levels
			return err
		}
		if stopped = yield(name, object[begin:r.at]); stopped != nil {
			return errStopped
		}
		return nil
	})
	return r.finish(fault, stopped)
}

// Leaves calls yield with each leaf of a JSON object in the order of the text:
// the names that lead to it, and its value. Scalars, arrays and nested objects
// without members are leaves. The path is valid during the call only. Leaves
// returns the error of yield; all other errors are *Error.
func Leaves(object []byte, yield func(path []string, leaf any) error) error {
	r := newReader(object)
	if r.peek() != '{' {
		return &Error{Message: "must be a JSON object"}
	}
	var stopped error
	fault := r.leaves(nil, func(path []string, leaf any) *Error {
		if stopped = yield(path, leaf); stopped != nil {
			return errStopped
		}
		return nil
	})
	return r.finish(fault, stopped)
}

// errStopped ends a walk because the caller's function returned an error.
var errStopped = &Error{Message: "stopped"}

// reader reads one JSON text. The decoder of package jsontext takes more than
// twice the time and memory, and every input, item and result is read here. The
// methods return *Error as a concrete type, because each level adds to its path.
type reader struct {
	text   string
	at     int // offset of the next byte
	copies bool
}

func newReader(text []byte) *reader {
	return &reader{text: string(text), copies: len(text) > copyAbove}
}

// finish returns the error of a walk through an object.
func (r *reader) finish(fault *Error, stopped error) error {
	switch {
	case stopped != nil:
		return stopped
	case fault != nil:
		return fault
	}
	if err := r.end(); err != nil {
		return err
	}
	return nil
}

// end checks that nothing follows the value.
func (r *reader) end() *Error {
	if r.peek(); r.at < len(r.text) {
		return &Error{Message: "more than one JSON value; only one is allowed"}
	}
	return nil
}

// peek passes over white space and returns the next byte, 0 at the end of the text.
func (r *reader) peek() byte {
	for ; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// invalid returns an error at the next byte.
func (r *reader) invalid() *Error {
	if strings.TrimSpace(r.text) == "" {
		return &Error{Message: "invalid JSON: the text ends before the value is complete"}
	}
	return &Error{Message: fmt.Sprintf("invalid JSON at byte %d", r.at)}
}

// value reads a value inside depth arrays and objects.
func (r *reader) value(depth int) (any, *Error) {
	switch r.peek() {
	case '{':
		return r.object(depth)
	case '[':
		return r.array(depth)
	case '"':
		return r.string()
	case 't':
		return true, r.literal("true")
	case 'f':
		return false, r.literal("false")
	case 'n':
		return nil, r.literal("null")
	default:
		return r.number()
	}
}

func (r *reader) literal(word string) *Error {
	for i := range len(word) {
		if r.at == len(r.text) || r.text[r.at] != word[i] {
			return r.invalid()
		}
		r.at++
	}
	return nil
}

func (r *reader) array(depth int) (any, *Error) {
	if err := checkDepth(depth); err != nil {
		return nil, err
	}
	items := []any{}
	r.at++
	if r.peek() == ']' {
		r.at++
		return items, nil
	}
	for {
		item, err := r.value(depth + 1)
		if err != nil {
			return nil, err.in(strconv.Itoa(len(items)))
		}
		items = append(items, item)
		switch r.peek() {
		case ',':
			r.at++
		case ']':
			r.at++
			return items, nil
		default:
			return nil, r.invalid()
		}
	}
}

func (r *reader) object(depth int) (any, *Error) {
	members := map[string]any{}
	err := r.members(depth, func(name string) *Error {
		value, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		before := len(members)
		if members[name] = value; len(members) == before {
			return &Error{Message: "the name occurs twice in its object; names must be unique"}
		}
		return nil
	})
	return members, err
}

// leaves reads an object at a path.
func (r *reader) leaves(path []string, yield func(path []string, leaf any) *Error) *Error {
	seen := names{}
	err := r.members(len(path), func(name string) *Error {
		if err := seen.add(name); err != nil {
			return err
		}
		inner := append(slices.Clip(path), name)
		if r.peek() == '{' {
			return r.leaves(inner, yield)
		}
		leaf, err := r.value(len(inner))
		if err != nil {
			return err
		}
		return yield(inner, leaf)
	})
	if err == nil && len(seen) == 0 && len(path) > 0 {
		return yield(path, map[string]any{})
	}
	return err
}

// names are those of one object, read until now.
type names map[string]struct{}

func (n names) add(name string) *Error {
	before := len(n)
	if n[name] = struct{}{}; len(n) == before {
		return &Error{Message: "the name occurs twice in its object; names must be unique"}
	}
	return nil
}

// members reads an object inside depth arrays and objects. It calls readValue after the
// colon of each member, to read the value.
func (r *reader) members(depth int, readValue func(name string) *Error) *Error {
	if err := checkDepth(depth); err != nil {
		return err
	}
	r.at++
	if r.peek() == '}' {
		r.at++
		return nil
	}
	for {
		if r.peek() != '"' {
			return r.invalid()
		}
		name, err := r.string()
		if err != nil {
			return err
		}
		if r.peek() != ':' {
			return r.invalid().in(name)
		}
		r.at++
		if err := readValue(name); err != nil {
			return err.in(name)
		}
		switch r.peek() {
		case ',':
			r.at++
		case '}':
			r.at++
			return nil
		default:
			return r.invalid()
		}
	}
}

func checkDepth(depth int) *Error {
	if depth == DepthMax {
		return &Error{Message: fmt.Sprintf("must not be nested deeper than %d levels", DepthMax)}
	}
	return nil
}

// part returns the text from an offset to the next byte.
func (r *reader) part(from int) string {
	if r.copies {
		return strings.Clone(r.text[from:r.at])
	}
	return r.text[from:r.at]
}

// string reads a string, which is a value or a name.
func (r *reader) string() (string, *Error) {
	begin, isASCII := r.at, true
	for i := begin + 1; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == '"' && (isASCII || utf8.ValidString(r.text[begin+1:i])):
			r.at = i
			text := r.part(begin + 1)
			r.at++
			return text, nil
		case c == '"' || c == '\\' || c < ' ':
			return r.unquote()
		case c >= utf8.RuneSelf:
			isASCII = false
		}
	}
	return r.unquote()
}

// unquote reads a string with escapes, and finds the fault of an invalid string.
func (r *reader) unquote() (string, *Error) {
	end := r.at + 1
	for end < len(r.text) && r.text[end] != '"' {
		if r.text[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end+1, len(r.text))
	text, err := jsontext.AppendUnquote(nil, r.text[r.at:end])
	if err != nil {
		_, err := jsontext.NewDecoder(strings.NewReader(r.text[r.at:])).ReadToken()
		if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			r.at += int(syntactic.ByteOffset)
		}
		return "", r.invalid()
	}
	if slices.Contains(text, 0) {
		return "", &Error{Message: `must not contain a NUL character (\u0000)`}
	}
	r.at = end
	return string(text), nil
}

func (r *reader) number() (any, *Error) {
	begin := r.at
	r.accept("-")
	if !r.accept("0") && !r.digits() {
		return nil, r.invalid()
	}
	if r.accept(".") && !r.digits() {
		return nil, r.invalid()
	}
	hasExponent := r.accept("eE")
	if hasExponent {
		r.accept("+-")
		if !r.digits() {
			return nil, r.invalid()
		}
	}
	text := r.part(begin)
	if (hasExponent || len(text) > DigitsMax) && !NumberFits(text) {
		return nil, &Error{Message: fmt.Sprintf("a number must have at most %d digits and an exponent within ±%d", DigitsMax, ExponentMax)}
	}
	return json.Number(text), nil
}

// accept passes over the next byte if it is one of set.
func (r *reader) accept(set string) bool {
	if r.at < len(r.text) && strings.IndexByte(set, r.text[r.at]) >= 0 {
		r.at++
		return true
	}
	return false
}

// digits passes over digits. It returns false if there is none.
func (r *reader) digits() bool {
	begin := r.at
	for r.at < len(r.text) && r.text[r.at] >= '0' && r.text[r.at] <= '9' {
		r.at++
	}
	return r.at > begin
}

// in puts a member's name or an item's index in front of the path. A name of digits alone
// is written as an index: items[3].amount.
func (e *Error) in(segment string) *Error {
	if e == errStopped {
		return e
	}
	if _, err := strconv.ParseUint(segment, 10, 32); err == nil {
		segment = "[" + segment + "]"
	}
	if e.Path != "" && e.Path[0] != '[' {
		segment += "."
	}
	e.Path = segment + e.Path
	return e
}
