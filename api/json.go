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

// JSON is any JSON value, as an exactjson value. Numbers keep their exact text.
type JSON struct{ Value any }

// UnmarshalJSON decodes the value exactly.
func (j *JSON) UnmarshalJSON(text []byte) error {
	value, err := exactjson.Decode(text)
	j.Value = value
	return err
}

// MarshalJSON encodes the value exactly.
func (j JSON) MarshalJSON() ([]byte, error) { return exactjson.Encode(j.Value) }

// Schema returns the schema of any value. It implements huma.SchemaProvider.
func (JSON) Schema(huma.Registry) *huma.Schema { return &huma.Schema{} }

// JSONObject is an object with any members. Numbers keep their exact text.
type JSONObject struct{ Members map[string]any }

// UnmarshalJSON decodes the members exactly. null sets them to nil.
func (o *JSONObject) UnmarshalJSON(text []byte) error {
	value, err := exactjson.Decode(text)
	o.Members, _ = value.(map[string]any)
	return err
}

// MarshalJSON encodes the members exactly. Nil members are {}.
func (o JSONObject) MarshalJSON() ([]byte, error) {
	if o.Members == nil {
		return []byte("{}"), nil
	}
	return exactjson.Encode(o.Members)
}

// Schema returns the schema of an object. It implements huma.SchemaProvider.
func (JSONObject) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

// RawJSON is the text of any JSON value.
type RawJSON json.RawMessage

// UnmarshalJSON copies the text. null is empty.
func (j *RawJSON) UnmarshalJSON(text []byte) error { return keepText((*[]byte)(j), text) }

// MarshalJSON returns the text. Empty text is null.
func (j RawJSON) MarshalJSON() ([]byte, error) { return textOr(j, "null"), nil }

// Schema returns the schema of any value. It implements huma.SchemaProvider.
func (RawJSON) Schema(huma.Registry) *huma.Schema { return &huma.Schema{} }

// RawObject is the text of an object with any members.
type RawObject json.RawMessage

// UnmarshalJSON copies the text. null is empty.
func (o *RawObject) UnmarshalJSON(text []byte) error { return keepText((*[]byte)(o), text) }

// MarshalJSON returns the text. Empty text is {}.
func (o RawObject) MarshalJSON() ([]byte, error) { return textOr(o, "{}"), nil }

// Schema returns the schema of an object. It implements huma.SchemaProvider.
func (RawObject) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

// RawArray is the text of an array of T.
type RawArray[T any] json.RawMessage

// UnmarshalJSON copies the text. null is empty.
func (a *RawArray[T]) UnmarshalJSON(text []byte) error { return keepText((*[]byte)(a), text) }

// MarshalJSON returns the text. Empty text is [].
func (a RawArray[T]) MarshalJSON() ([]byte, error) { return textOr(a, "[]"), nil }

// Schema returns the schema of an array of T. It implements huma.SchemaProvider.
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

// Integer is an integer in requests in any notation: 60, 60.0 or 6e1.
type Integer int

// UnmarshalJSON decodes an integer, which has been validated. null changes nothing.
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

// Timestamp is a time in RFC 3339, in UTC with milliseconds (contract 1.2).
type Timestamp struct{ time.Time }

// stamp returns t as a Timestamp.
func stamp(t time.Time) Timestamp { return Timestamp{t} }

// stampOrNil is like stamp for a time that may be nil.
func stampOrNil(t *time.Time) *Timestamp {
	if t == nil {
		return nil
	}
	return &Timestamp{*t}
}

// stampOrAbsent is like stamp for a time that may be zero.
func stampOrAbsent(t time.Time) *Timestamp {
	if t.IsZero() {
		return nil
	}
	return &Timestamp{t}
}

// readsLike reports whether t and other have the same text in the API. A caller that
// sends back a time from an answer then changes nothing.
func (t Timestamp) readsLike(other time.Time) bool {
	return t.Truncate(time.Millisecond).Equal(other.Truncate(time.Millisecond))
}

// MarshalJSON encodes the time.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(exactjson.FormatTime(t.Time))
}

// UnmarshalJSON decodes any RFC 3339 time.
func (t *Timestamp) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &t.Time) }

// Schema returns the schema of a date-time. It implements huma.SchemaProvider.
func (Timestamp) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time", Examples: []any{"2026-11-21T02:09:25.123Z"}}
}
