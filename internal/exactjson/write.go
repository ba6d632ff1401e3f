package exactjson

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// FormatTime is how a time is written: RFC 3339, UTC, milliseconds (contract 1.2).
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Encode returns a value as compact JSON with sorted names. Numbers keep their
// text, and HTML is not escaped. A value of a kind that this package does not
// read, or a string of invalid UTF-8, is an error.
func Encode(v any) ([]byte, error) { return Append(nil, v) }

// Append appends a value to dst as Encode writes it.
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
		if dst, err = Append(append(dst, ':'), members[name]); err != nil {
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
