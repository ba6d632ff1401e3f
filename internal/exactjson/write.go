package exactjson

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// FormatTime is how a time is written: RFC 3339, UTC, milliseconds (decisions 1.2).
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Encode writes a value as compact JSON with sorted keys, numbers with the
// text they hold, and without escaping HTML. It accepts the value kinds of
// this package; anything else is an error.
func Encode(v any) ([]byte, error) {
	return Build(func(dst []byte) ([]byte, error) { return Append(dst, v) })
}

// Build returns what write appends to its argument, as a slice of that size:
// the room in which it grows is used again.
func Build(write func(dst []byte) ([]byte, error)) ([]byte, error) {
	room, _ := rooms.Get().(*[]byte)
	defer rooms.Put(room)
	text, err := write((*room)[:0])
	if err != nil {
		return nil, err
	}
	if cap(text) <= roomKept {
		*room = text
	}
	return slices.Clone(text), nil
}

// rooms are those of Build.
//
//nolint:gochecknoglobals // a pool is shared by its nature
var rooms = sync.Pool{New: func() any { return new([]byte) }}

// roomKept is the most bytes that are kept for the next text.
const roomKept = 64 << 10

// Append is Encode into the end of dst.
func Append(dst []byte, v any) ([]byte, error) {
	return appendValue(dst, v, false)
}

// AppendHTML is Append with texts as encoding/json writes them: it escapes what
// HTML would take for its own, and replaces invalid UTF-8.
func AppendHTML(dst []byte, v any) ([]byte, error) {
	return appendValue(dst, v, true)
}

func appendValue(dst []byte, v any, html bool) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case string:
		return appendText(dst, v, html)
	case json.Number:
		return append(dst, v...), nil
	case []any:
		return appendArray(dst, v, html)
	case map[string]any:
		return appendObject(dst, v, html)
	default:
		return nil, fmt.Errorf("exactjson: cannot write a %T", v)
	}
}

func appendArray(dst []byte, items []any, html bool) ([]byte, error) {
	dst = append(dst, '[')
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendValue(dst, item, html); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func appendObject(dst []byte, members map[string]any, html bool) ([]byte, error) {
	var few [16]string // enough for most objects, and no garbage
	names := few[:0]
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	dst = append(dst, '{')
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendText(dst, name, html); err != nil {
			return nil, err
		}
		dst = append(dst, ':')
		if dst, err = appendValue(dst, members[name], html); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

func appendText(dst []byte, text string, html bool) ([]byte, error) {
	if html || isPlain(text) {
		return AppendHTMLText(dst, text), nil
	}
	return jsontext.AppendQuote(dst, text)
}

// AppendHTMLText is AppendHTML for a text.
func AppendHTMLText(dst []byte, text string) []byte {
	if !isPlain(text) {
		quoted, _ := json.Marshal(text) // a text always can
		return append(dst, quoted...)
	}
	dst = append(dst, '"')
	dst = append(dst, text...)
	return append(dst, '"')
}

// isPlain reports whether a text stands for itself between quotation marks, as
// nearly all do.
func isPlain(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
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
