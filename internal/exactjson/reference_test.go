package exactjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tranche/internal/exactjson"
)

// reference reads with the token reader of a library what Decode reads by itself.
func reference(text []byte) (any, error) {
	r := tokenReader{dec: jsontext.NewDecoder(bytes.NewReader(text))}
	v, err := r.value(0)
	if err != nil {
		return nil, r.translate(err)
	}
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, &exactjson.Error{Message: "more than one JSON value"}
	}
	return v, nil
}

type tokenReader struct{ dec *jsontext.Decoder }

func (r *tokenReader) value(depth int) (any, error) {
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
		if depth >= exactjson.DepthMax {
			return nil, r.fault(fmt.Sprintf("nested deeper than %d levels", exactjson.DepthMax))
		}
		if tok.Kind() == '[' {
			return r.array(depth)
		}
		return r.object(depth)
	default:
		return nil, r.fault("invalid JSON")
	}
}

func (r *tokenReader) array(depth int) (any, error) {
	items := []any{}
	for r.dec.PeekKind() != ']' {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(items, v)
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, err
	}
	return items, nil
}

func (r *tokenReader) object(depth int) (any, error) {
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
		members[name] = v
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, err
	}
	return members, nil
}

func (r *tokenReader) text(tok jsontext.Token) (string, error) {
	s := tok.String()
	if strings.IndexByte(s, 0) >= 0 {
		return "", r.fault("contains a NUL character")
	}
	return s, nil
}

func (r *tokenReader) number(tok jsontext.Token) (any, error) {
	s := tok.String()
	if !exactjson.NumberFits(s) {
		return nil, r.fault(fmt.Sprintf("a number has at most %d digits and an exponent within ±%d", exactjson.DigitsMax, exactjson.ExponentMax))
	}
	return json.Number(s), nil
}

func (r *tokenReader) fault(message string) error {
	return &exactjson.Error{Path: callerPath(r.dec.StackPointer()), Message: message}
}

func (r *tokenReader) translate(err error) error {
	if own, ok := errors.AsType[*exactjson.Error](err); ok {
		return own
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return &exactjson.Error{Path: callerPath(syntactic.JSONPointer), Message: "the name occurs twice"}
		}
		return &exactjson.Error{Path: callerPath(syntactic.JSONPointer), Message: fmt.Sprintf("invalid JSON at byte %d", syntactic.ByteOffset)}
	}
	return &exactjson.Error{Message: "invalid JSON: the text ends early"}
}

// callerPath writes a JSON pointer the way a caller writes a member: items[3].amount.
// An all-digit segment counts as an index.
func callerPath(pointer jsontext.Pointer) string {
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
