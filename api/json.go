package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tranche/internal/exactjson"
)

// JSON is any JSON value with its numbers' exact text, in requests and
// answers; the value is one of package exactjson.
type JSON struct{ Value any }

// UnmarshalJSON reads the value exactly.
func (j *JSON) UnmarshalJSON(text []byte) error {
	value, err := exactjson.Decode(text)
	j.Value = value
	return err
}

// MarshalJSON writes the value exactly.
func (j JSON) MarshalJSON() ([]byte, error) { return exactjson.Encode(j.Value) }

// Schema says that it may be anything; huma.SchemaProvider.
func (JSON) Schema(huma.Registry) *huma.Schema { return &huma.Schema{} }

// JSONObject is an object of any members with their exact text.
type JSONObject struct{ Members map[string]any }

// UnmarshalJSON reads the members exactly; null leaves them nil.
func (o *JSONObject) UnmarshalJSON(text []byte) error {
	value, err := exactjson.Decode(text)
	o.Members, _ = value.(map[string]any)
	return err
}

// MarshalJSON writes the members exactly; an object without any is {}.
func (o JSONObject) MarshalJSON() ([]byte, error) {
	if o.Members == nil {
		return []byte("{}"), nil
	}
	return exactjson.Encode(o.Members)
}

// Schema says that it is an object; huma.SchemaProvider.
func (JSONObject) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

// RawJSON is any JSON value with its text kept as it was written.
type RawJSON json.RawMessage

// UnmarshalJSON keeps the text; null leaves it empty.
func (j *RawJSON) UnmarshalJSON(text []byte) error { return keepText((*[]byte)(j), text) }

// MarshalJSON writes the text; an empty one is null.
func (j RawJSON) MarshalJSON() ([]byte, error) { return textOr(j, "null"), nil }

// Schema says that it may be anything; huma.SchemaProvider.
func (RawJSON) Schema(huma.Registry) *huma.Schema { return &huma.Schema{} }

// RawObject is an object of any members with its text kept as it was written.
type RawObject json.RawMessage

// UnmarshalJSON keeps the text; null leaves it empty.
func (o *RawObject) UnmarshalJSON(text []byte) error { return keepText((*[]byte)(o), text) }

// MarshalJSON writes the text; an empty one is {}.
func (o RawObject) MarshalJSON() ([]byte, error) { return textOr(o, "{}"), nil }

// Schema says that it is an object; huma.SchemaProvider.
func (RawObject) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

// RawArray is an array of T with its text kept as it was written.
type RawArray[T any] json.RawMessage

// UnmarshalJSON keeps the text; null leaves it empty.
func (a *RawArray[T]) UnmarshalJSON(text []byte) error { return keepText((*[]byte)(a), text) }

// MarshalJSON writes the text; an empty one is [].
func (a RawArray[T]) MarshalJSON() ([]byte, error) { return textOr(a, "[]"), nil }

// Schema says that it is an array of T; huma.SchemaProvider.
func (RawArray[T]) Schema(registry huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Items: registry.Schema(reflect.TypeFor[T](), true, "")}
}

func keepText(to *[]byte, text []byte) error {
	if string(text) == "null" {
		*to = nil
		return nil
	}
	*to = bytes.Clone(text)
	return nil
}

func textOr(text []byte, otherwise string) []byte {
	if len(text) == 0 {
		return []byte(otherwise)
	}
	return text
}

// Integer is an integer in requests, however it is written: 60, 60.0, 6e1.
type Integer int

// UnmarshalJSON reads an integer, which the body has been checked to have here; null
// leaves it as it is.
func (i *Integer) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	n, ok := exactjson.Integer(json.Number(text))
	if !ok {
		return errors.New("not an integer")
	}
	*i = Integer(n)
	return nil
}

// Timestamp is a time as the API writes it: RFC 3339, UTC, milliseconds
// (decisions 1.2).
type Timestamp struct{ time.Time }

// stamp returns t as the API writes it.
func stamp(t time.Time) Timestamp { return Timestamp{t} }

// stampOrNil is stamp for a time that is nil where it is absent.
func stampOrNil(t *time.Time) *Timestamp {
	if t == nil {
		return nil
	}
	return &Timestamp{*t}
}

// stampOrAbsent is stamp for a time that is zero where it is absent.
func stampOrAbsent(t time.Time) *Timestamp {
	if t.IsZero() {
		return nil
	}
	return &Timestamp{t}
}

// readsLike reports whether the API writes t and another time alike, so that a caller
// who repeats what was answered says nothing new.
func (t Timestamp) readsLike(other time.Time) bool {
	return t.Truncate(time.Millisecond).Equal(other.Truncate(time.Millisecond))
}

// MarshalJSON writes the time.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(exactjson.FormatTime(t.Time))
}

// UnmarshalJSON reads any RFC 3339 time.
func (t *Timestamp) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &t.Time) }

// Schema says that it is a date-time; huma.SchemaProvider.
func (Timestamp) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time", Examples: []any{"2026-11-21T02:09:25.123Z"}}
}
