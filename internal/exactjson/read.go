package exactjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Decode reads exactly one JSON value. Errors are *Error.
func Decode(text []byte) (any, error) {
	r := newReader(text)
	value, err := r.value(0)
	if err != nil {
		return nil, err
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return value, nil
}

// Members calls yield with each member of a JSON object in the order of the
// text: its name, and its value as it is written. It returns the error of
// yield; all other errors are *Error.
func Members(object []byte, yield func(name string, value []byte) error) error {
	r := newReader(object)
	if err := r.open('{', 0); err != nil {
		return err
	}
	for r.decoder.PeekKind() != '}' {
		name, err := r.name()
		if err != nil {
			return err
		}
		value, err := r.decoder.ReadValue()
		if err != nil {
			return r.translate(err)
		}
		if err := yield(name, value); err != nil {
			return err
		}
	}
	if err := r.close(); err != nil {
		return err
	}
	return r.end()
}

// Leaves calls yield with each leaf of a JSON object in the order of the text:
// the names that lead to it, and its value. Scalars, arrays and nested objects
// without members are leaves. The path is valid during the call only. Leaves
// returns the error of yield; all other errors are *Error.
func Leaves(object []byte, yield func(path []string, leaf any) error) error {
	r := newReader(object)
	if err := r.leaves(nil, yield); err != nil {
		return err
	}
	return r.end()
}

// reader makes values of the tokens of one JSON text. The decoder refuses
// invalid UTF-8 and duplicate names. All errors are *Error.
type reader struct{ decoder *jsontext.Decoder }

func newReader(text []byte) reader {
	return reader{jsontext.NewDecoder(bytes.NewBuffer(text))} // a Buffer is read in place
}

func (r reader) token() (jsontext.Token, error) {
	token, err := r.decoder.ReadToken()
	if err != nil {
		return token, r.translate(err)
	}
	return token, nil
}

// end checks that the text has ended.
func (r reader) end() error {
	if _, err := r.decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return &Error{Message: "more than one JSON value; only one is allowed"}
	}
	return nil
}

// value reads a value inside depth arrays and objects.
func (r reader) value(depth int) (any, error) {
	switch r.decoder.PeekKind() {
	case '{':
		return r.object(depth)
	case '[':
		return r.array(depth)
	}
	token, err := r.token()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case 'n':
		return nil, nil
	case '"':
		return r.text(token)
	case '0':
		return r.number(token)
	default:
		return token.Bool(), nil
	}
}

func (r reader) array(depth int) (any, error) {
	if err := r.open('[', depth); err != nil {
		return nil, err
	}
	items := []any{}
	for r.decoder.PeekKind() != ']' {
		item, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, r.close()
}

func (r reader) object(depth int) (any, error) {
	if err := r.open('{', depth); err != nil {
		return nil, err
	}
	members := map[string]any{}
	for r.decoder.PeekKind() != '}' {
		name, err := r.name()
		if err != nil {
			return nil, err
		}
		if members[name], err = r.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return members, r.close()
}

func (r reader) leaves(path []string, yield func(path []string, leaf any) error) error {
	if err := r.open('{', len(path)); err != nil {
		return err
	}
	if len(path) > 0 && r.decoder.PeekKind() == '}' {
		if err := yield(path, map[string]any{}); err != nil {
			return err
		}
	}
	for r.decoder.PeekKind() != '}' {
		name, err := r.name()
		if err != nil {
			return err
		}
		inner := append(path, name)
		if r.decoder.PeekKind() == '{' {
			err = r.leaves(inner, yield)
		} else {
			var leaf any
			if leaf, err = r.value(len(inner)); err == nil {
				err = yield(inner, leaf)
			}
		}
		if err != nil {
			return err
		}
	}
	return r.close()
}

// open reads the token that begins an array or object inside depth others.
func (r reader) open(kind jsontext.Kind, depth int) error {
	token, err := r.token()
	if err != nil {
		return err
	}
	if token.Kind() != kind {
		return r.fault("must be a JSON object")
	}
	if depth == DepthMax {
		return r.fault(fmt.Sprintf("must not be nested deeper than %d levels", DepthMax))
	}
	return nil
}

// close reads the token that ends an array or object.
func (r reader) close() error {
	_, err := r.token()
	return err
}

func (r reader) name() (string, error) {
	token, err := r.token()
	if err != nil {
		return "", err
	}
	name := token.String()
	if strings.IndexByte(name, 0) >= 0 {
		return "", &Error{Path: pathOf(r.decoder.StackPointer().Parent()), Message: `a name must not contain a NUL character (\u0000)`}
	}
	return name, nil
}

func (r reader) text(token jsontext.Token) (any, error) {
	text := token.String()
	if strings.IndexByte(text, 0) >= 0 {
		return nil, r.fault(`must not contain a NUL character (\u0000)`)
	}
	return text, nil
}

func (r reader) number(token jsontext.Token) (any, error) {
	text := token.String()
	if !NumberFits(text) {
		return nil, r.fault(fmt.Sprintf("a number must have at most %d digits and an exponent within ±%d", DigitsMax, ExponentMax))
	}
	return json.Number(text), nil
}

// fault returns an error at the token that was read last.
func (r reader) fault(message string) *Error {
	return &Error{Path: pathOf(r.decoder.StackPointer()), Message: message}
}

// translate returns the *Error for an error of the decoder.
func (r reader) translate(err error) *Error {
	syntactic, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case !ok:
		return &Error{Message: "invalid JSON: the text ends before the value is complete"}
	case errors.Is(err, jsontext.ErrDuplicateName):
		return &Error{Path: pathOf(syntactic.JSONPointer), Message: "the name occurs twice in its object; names must be unique"}
	default:
		return &Error{Path: pathOf(syntactic.JSONPointer), Message: fmt.Sprintf("invalid JSON at byte %d", syntactic.ByteOffset)}
	}
}

// pathOf writes a JSON pointer as callers write a path: items[3].amount. A name
// of digits alone is written as an index.
func pathOf(pointer jsontext.Pointer) string {
	var path strings.Builder
	for name := range pointer.Tokens() {
		switch _, err := strconv.ParseUint(name, 10, 32); {
		case err == nil:
			path.WriteString("[" + name + "]")
		case path.Len() > 0:
			path.WriteString("." + name)
		default:
			path.WriteString(name)
		}
	}
	return path.String()
}
