package exactjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// sharedMax is the length up to which a text is copied once and its names,
// texts and numbers are parts of that copy. Of a longer one each is a copy of
// its own, so that none keeps all the others in memory.
const sharedMax = 4 << 10

// reader reads one text. A general reader of tokens takes three times as long
// and as much memory, and every input, item and result comes through here.
type reader struct {
	text   []byte
	at     int    // of the next byte
	shared string // the same text, where its parts are shared
	// open are the members of the objects that are being read, so that each is
	// made in its size.
	open []member
	room []byte // where a short text is read that did not come as bytes
}

// readers are kept for their room and that of their open members.
//
//nolint:gochecknoglobals // a pool is shared by its nature
var readers = sync.Pool{New: func() any { return new(reader) }}

// openKept is the most members that a reader keeps room for.
const openKept = 256

// forget makes the reader fit to be kept: it holds nothing of what was handed to it.
func (r *reader) forget() {
	r.text, r.shared = nil, ""
	if cap(r.open) > openKept {
		r.open = nil
	}
	clear(r.open) // after an error
	r.open = r.open[:0]
}

type member struct {
	name  string
	value any
}

// decode reads the only value of the text and lets go of it.
func (r *reader) decode() (any, error) {
	defer r.forget()
	r.at = 0
	if r.skipSpace(); r.at == len(r.text) {
		return nil, &Error{Message: "invalid JSON: the text ends early"}
	}
	v, err := r.value(0)
	if err != nil {
		return nil, err
	}
	if r.skipSpace(); r.at < len(r.text) {
		return nil, &Error{Message: "more than one JSON value"}
	}
	return v, nil
}

func (r *reader) skipSpace() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

// peek returns the next byte that is no space, 0 at the end of the text.
func (r *reader) peek() byte {
	if r.skipSpace(); r.at < len(r.text) {
		return r.text[r.at]
	}
	return 0
}

// value reads a value. It and the methods that it calls give *Error as a
// concrete type, because each level of nesting adds to its path.
func (r *reader) value(depth int) (any, *Error) {
	switch c := r.peek(); c {
	case '{', '[':
		if depth >= DepthMax {
			return nil, &Error{Message: fmt.Sprintf("nested deeper than %d levels", DepthMax)}
		}
		r.at++
		if c == '[' {
			return r.array(depth + 1)
		}
		return r.object(depth + 1)
	case '"':
		text, err := r.string()
		if err != nil {
			return nil, err
		}
		return text, nil
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

// invalid is an error at the next byte.
func (r *reader) invalid() *Error {
	return &Error{Message: fmt.Sprintf("invalid JSON at byte %d", r.at)}
}

// in makes an error that of a member or an element. A name of digits alone
// counts as an index.
func (e *Error) in(segment string) *Error {
	if _, err := strconv.ParseUint(segment, 10, 32); err == nil {
		segment = "[" + segment + "]"
	}
	if e.Path != "" && e.Path[0] != '[' {
		segment += "."
	}
	e.Path = segment + e.Path
	return e
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
	items := []any{}
	if r.peek() == ']' {
		r.at++
		return items, nil
	}
	for i := 0; ; i++ {
		v, err := r.value(depth)
		if err != nil {
			return nil, err.in(strconv.Itoa(i))
		}
		items = append(items, v)
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
	first := len(r.open)
	if r.peek() == '}' {
		r.at++
		return map[string]any{}, nil
	}
	for {
		if r.peek() != '"' {
			return nil, r.invalid()
		}
		name, err := r.string()
		if err != nil {
			return nil, err
		}
		if r.peek() != ':' {
			return nil, r.invalid().in(name)
		}
		r.at++
		v, err := r.value(depth)
		if err != nil {
			return nil, err.in(name)
		}
		r.open = append(r.open, member{name, v})
		switch r.peek() {
		case ',':
			r.at++
		case '}':
			r.at++
			return r.close(first)
		default:
			return nil, r.invalid()
		}
	}
}

// close makes an object of the members that were read last.
func (r *reader) close(first int) (any, *Error) {
	members := r.open[first:]
	object := make(map[string]any, len(members))
	for i, m := range members {
		if object[m.name] = m.value; len(object) == i {
			return nil, (&Error{Message: "the name occurs twice"}).in(m.name)
		}
	}
	clear(members)
	r.open = r.open[:first]
	return object, nil
}

// part is a piece of the text.
func (r *reader) part(from, to int) string {
	if r.shared != "" {
		return r.shared[from:to]
	}
	return string(r.text[from:to])
}

// string reads a text in quotation marks, a value or a name.
func (r *reader) string() (string, *Error) {
	begin := r.at
	ascii := true
	for i := begin + 1; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == '"' && (ascii || utf8.Valid(r.text[begin+1:i])):
			r.at = i + 1
			return r.part(begin+1, i), nil
		case c == '"' || c == '\\' || c < ' ':
			return r.escaped()
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return r.escaped()
}

// escaped reads a text with escapes, and finds what is wrong with one.
func (r *reader) escaped() (string, *Error) {
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
		_, err := jsontext.NewDecoder(bytes.NewReader(r.text[r.at:])).ReadToken()
		if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
			r.at += int(syntactic.ByteOffset)
		}
		return "", r.invalid()
	}
	r.at = end
	if bytes.IndexByte(text, 0) >= 0 {
		return "", &Error{Message: "contains a NUL character"}
	}
	return string(text), nil
}

func (r *reader) number() (any, *Error) {
	begin := r.at
	if r.at < len(r.text) && r.text[r.at] == '-' {
		r.at++
	}
	if r.at < len(r.text) && r.text[r.at] == '0' {
		r.at++
	} else if !r.digits() {
		return nil, r.invalid()
	}
	if r.at < len(r.text) && r.text[r.at] == '.' {
		r.at++
		if !r.digits() {
			return nil, r.invalid()
		}
	}
	hasExponent := r.at < len(r.text) && (r.text[r.at] == 'e' || r.text[r.at] == 'E')
	if hasExponent {
		r.at++
		if r.at < len(r.text) && (r.text[r.at] == '+' || r.text[r.at] == '-') {
			r.at++
		}
		if !r.digits() {
			return nil, r.invalid()
		}
	}
	text := r.part(begin, r.at)
	if (hasExponent || len(text) > DigitsMax) && !NumberFits(text) {
		return nil, &Error{Message: fmt.Sprintf("a number has at most %d digits and an exponent within ±%d", DigitsMax, ExponentMax)}
	}
	return json.Number(text), nil
}

// digits passes over digits, of which there must be one.
func (r *reader) digits() bool {
	begin := r.at
	for r.at < len(r.text) && r.text[r.at] >= '0' && r.text[r.at] <= '9' {
		r.at++
	}
	return r.at > begin
}
