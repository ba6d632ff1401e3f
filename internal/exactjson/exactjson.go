// Package exactjson reads and writes JSON without losing a digit. A value is
// nil, bool, string, json.Number, []any or map[string]any, and nothing else;
// numbers keep the text they arrived with. Reading is strict: duplicate keys,
// invalid UTF-8, NUL characters, too deep nesting and absurd numbers are
// errors (decisions 1.4, design/security.md 14). It must know no other
// package of the project.
package exactjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of what is read.
const (
	DepthMax    = 64  // nested arrays and objects
	DigitsMax   = 100 // digits of a number, its exponent not counted
	ExponentMax = 400 // absolute value of a number's exponent
)

// Error says what is wrong with a text and where. It never repeats a value.
type Error struct {
	// Path leads to the value as a caller would write it, items[3].amount;
	// empty for the whole text.
	Path    string
	Message string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// Decode reads exactly one JSON value. Errors are *Error.
func Decode(text []byte) (any, error) {
	return decodeAll(text, true)
}

// Check reports what Decode would refuse, without building the value.
func Check(text []byte) error {
	_, err := decodeAll(text, false)
	return err
}

func decodeAll(text []byte, build bool) (any, error) {
	r := reader{dec: jsontext.NewDecoder(bytes.NewReader(text)), build: build}
	v, err := r.value(0)
	if err != nil {
		return nil, r.translate(err)
	}
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, &Error{Message: "more than one JSON value"}
	}
	return v, nil
}

type reader struct {
	dec   *jsontext.Decoder
	build bool
}

func (r *reader) value(depth int) (any, error) {
	tok, err := r.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return tok.Bool(), nil
	case '"':
		return r.text(tok)
	case '0':
		return r.number(tok)
	case '[', '{':
		if depth >= DepthMax {
			return nil, r.fault(fmt.Sprintf("nested deeper than %d levels", DepthMax))
		}
		if tok.Kind() == '[' {
			return r.array(depth)
		}
		return r.object(depth)
	default:
		return nil, r.fault("invalid JSON")
	}
}

func (r *reader) array(depth int) (any, error) {
	items := []any{}
	for r.dec.PeekKind() != ']' {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if r.build {
			items = append(items, v)
		}
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, err
	}
	return items, nil
}

func (r *reader) object(depth int) (any, error) {
	members := map[string]any{}
	for r.dec.PeekKind() != '}' {
		tok, err := r.dec.ReadToken()
		if err != nil {
			return nil, err
		}
		name, err := r.text(tok)
		if err != nil {
			return nil, err
		}
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if r.build {
			members[name] = v
		}
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, err
	}
	return members, nil
}

func (r *reader) text(tok jsontext.Token) (string, error) {
	s := tok.String()
	if strings.IndexByte(s, 0) >= 0 {
		return "", r.fault("contains a NUL character")
	}
	return s, nil
}

func (r *reader) number(tok jsontext.Token) (any, error) {
	s := tok.String()
	if !NumberFits(s) {
		return nil, r.fault(fmt.Sprintf("a number has at most %d digits and an exponent within ±%d", DigitsMax, ExponentMax))
	}
	return json.Number(s), nil
}

// NumberFits reports whether the JSON number s is within DigitsMax and ExponentMax.
func NumberFits(s string) bool {
	mantissa, exponent := s, ""
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exponent = s[:i], s[i+1:]
	}
	digits := 0
	for i := range len(mantissa) {
		if mantissa[i] >= '0' && mantissa[i] <= '9' {
			digits++
		}
	}
	if digits > DigitsMax {
		return false
	}
	if exponent == "" {
		return true
	}
	n, err := strconv.Atoi(exponent)
	return err == nil && n >= -ExponentMax && n <= ExponentMax
}

func (r *reader) fault(message string) error {
	return &Error{Path: Path(r.dec.StackPointer()), Message: message}
}

func (r *reader) translate(err error) error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return &Error{Path: Path(syntactic.JSONPointer), Message: "the name occurs twice"}
		}
		return &Error{Path: Path(syntactic.JSONPointer), Message: fmt.Sprintf("invalid JSON at byte %d", syntactic.ByteOffset)}
	}
	return &Error{Message: "invalid JSON: the text ends early"}
}

// Path writes a JSON pointer the way a caller writes a member: items[3].amount.
// An all-digit segment counts as an index.
func Path(pointer jsontext.Pointer) string {
	var b strings.Builder
	for segment := range pointer.Tokens() {
		if _, err := strconv.ParseUint(segment, 10, 32); err == nil {
			b.WriteString("[" + segment + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(segment)
	}
	return b.String()
}

// Encode writes a value as compact JSON with sorted keys, numbers with the
// text they hold, and without escaping HTML. It accepts the value kinds of
// this package; anything else is an error.
func Encode(v any) ([]byte, error) {
	return Append(nil, v)
}

// Append is Encode into the end of dst.
func Append(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case string:
		return jsontext.AppendQuote(dst, v)
	case json.Number:
		return append(dst, v...), nil
	case []any:
		return appendArray(dst, v)
	case map[string]any:
		return appendObject(dst, v)
	default:
		return nil, fmt.Errorf("exactjson: cannot write a %T", v)
	}
}

func appendArray(dst []byte, items []any) ([]byte, error) {
	dst = append(dst, '[')
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = Append(dst, item); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func appendObject(dst []byte, members map[string]any) ([]byte, error) {
	dst = append(dst, '{')
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = jsontext.AppendQuote(dst, name); err != nil {
			return nil, err
		}
		dst = append(dst, ':')
		if dst, err = Append(dst, members[name]); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// Any carries a value through encoding/json as a member of a struct without
// losing a digit.
type Any struct{ Value any }

// MarshalJSON writes the value as Encode does.
func (a Any) MarshalJSON() ([]byte, error) { return Encode(a.Value) }

// UnmarshalJSON reads the value as Decode does.
func (a *Any) UnmarshalJSON(text []byte) error {
	value, err := Decode(text)
	a.Value = value
	return err
}
