package batch

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tranche/internal/exactjson"
	"tranche/internal/itemfile"
)

// Reports take what they show from the text of JSON as it is stored: building
// the values first would cost several times as much as writing the files. The
// database has checked the grammar, so the walk below only finds its way.

// errNotJSON says that a text is not what the database lets in.
var errNotJSON = errors.New("this is not a JSON object")

// jsonWalk goes through the text of one JSON value.
type jsonWalk struct {
	text string
	at   int
}

// members calls yield at the value of each member of the object that begins
// here; yield passes over the value.
func (w *jsonWalk) members(yield func(name string) error) error {
	if w.next() != '{' {
		return errNotJSON
	}
	w.at++
	for w.next() != '}' {
		if w.next() == ',' {
			w.at++
		}
		name, err := unquote(w.value())
		if err != nil {
			return err
		}
		if w.next() != ':' {
			return errNotJSON
		}
		w.at++
		if err := yield(name); err != nil {
			return err
		}
	}
	w.at++
	return nil
}

// leaves calls yield for every leaf of the object that begins here with the name of
// its column, after that of the object, and its text. Arrays and empty objects are leaves.
func (w *jsonWalk) leaves(path []byte, yield func(path []byte, leaf string) error) error {
	return w.members(func(name string) error {
		at := itemfile.AppendName(path, name)
		if w.next() == '{' {
			inner := jsonWalk{text: w.text, at: w.at + 1}
			if inner.next() != '}' {
				return w.leaves(append(at, '.'), yield)
			}
		}
		return yield(at, w.value())
	})
}

// next passes over white space and returns the byte after it, 0 at the end.
func (w *jsonWalk) next() byte {
	for ; w.at < len(w.text); w.at++ {
		switch c := w.text[w.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// value passes over a value and returns its text, empty at the end of it all.
func (w *jsonWalk) value() string {
	switch c := w.next(); c {
	case '"':
		begin := w.at
		w.passString()
		return w.text[begin:w.at]
	case '{', '[':
		begin, depth := w.at, 0
		for w.at < len(w.text) {
			switch w.text[w.at] {
			case '"':
				w.passString()
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			w.at++
			if depth == 0 {
				break
			}
		}
		return w.text[begin:w.at]
	default:
		begin := w.at
		for w.at < len(w.text) && !endsLiteral(w.text[w.at]) {
			w.at++
		}
		return w.text[begin:w.at]
	}
}

// endsLiteral reports whether a byte comes after a number, true, false or null.
func endsLiteral(c byte) bool {
	return c == ',' || c == '}' || c == ']' || c == ' ' || c == '\t' || c == '\n' || c == '\r'
}

func (w *jsonWalk) passString() {
	for w.at++; w.at < len(w.text); w.at++ {
		switch w.text[w.at] {
		case '\\':
			w.at++
		case '"':
			w.at++
			return
		}
	}
	w.at = len(w.text)
}

// unquote returns the text that a JSON string stands for.
func unquote(quoted string) (string, error) {
	if len(quoted) < 2 || quoted[0] != '"' {
		return "", errNotJSON
	}
	if strings.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1], nil
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNotJSON, err)
	}
	return string(text), nil
}

// cellOf writes a leaf as the text of a cell: numbers with their exact text,
// arrays and empty objects as JSON, null as empty; texts escaped.
func cellOf(leaf string) (string, error) {
	switch {
	case leaf == "":
		return "", errNotJSON
	case leaf[0] == '"':
		text, err := unquote(leaf)
		return itemfile.Escape(text), err
	case leaf[0] == '[', leaf[0] == '{':
		value, err := exactjson.Decode([]byte(leaf))
		if err != nil {
			return "", err
		}
		text, err := exactjson.Encode(value)
		return string(text), err
	case leaf == "null":
		return "", nil
	default:
		return leaf, nil
	}
}
