package task

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/cockroachdb/apd/v3"

	"tranche/internal/exactjson"
)

// kind is the type of a value as decision tables see it.
type kind uint8

const (
	kindNull kind = 1 << iota
	kindBool
	kindNumber
	kindText
	kindOther // arrays and objects, which no cell but an expression can name
)

// literal is a constant of a cell.
type literal struct {
	kind   kind
	truth  bool
	number *apd.Decimal
	text   string
}

// test is one entry of a cell's list: an interval of values. If one end is absent, the
// interval is open towards all values of the other end's kind.
type test struct {
	low, high         *literal
	lowOpen, highOpen bool // the end itself does not count
	outside           bool // the values that are not in the interval
}

// cell is a condition that needs no expression: any of its tests holds, or,
// negated, none does.
type cell struct {
	any     bool
	negated bool
	tests   []test
}

var (
	errNotCell    = errors.New("not a unary test")
	errRangeKinds = errors.New("both ends of a range must be numbers, or both texts")
	errOrder      = errors.New("only numbers and texts can be ordered")
)

// parseCell reads the text of a condition:
//
//	cell  = "" | "-" | list | "not(" list ")"
//	list  = entry { "," entry }
//	entry = literal | ( "<" | "<=" | ">" | ">=" | "=" | "==" | "!=" ) literal | range
//	range = ( "[" | "(" | "]" ) [ literal ] ".." [ literal ] ( "]" | ")" | "[" )
//
// A text of another form gives errNotCell: it is an expression.
func parseCell(source string) (cell, error) {
	s := &cellScanner{rest: source}
	s.space()
	if s.rest == "" || strings.TrimSpace(s.rest) == "-" {
		return cell{any: true}, nil
	}
	c := cell{}
	if after, found := strings.CutPrefix(s.rest, "not"); found {
		s.rest = after
		s.space()
		c.negated = true
		if !s.take("(") {
			return cell{}, errNotCell
		}
	}
	for {
		t, err := s.entry()
		if err != nil {
			return cell{}, err
		}
		c.tests = append(c.tests, t)
		if !s.take(",") {
			break
		}
	}
	if c.negated && !s.take(")") {
		return cell{}, errNotCell
	}
	if s.rest != "" {
		return cell{}, errNotCell
	}
	return c, nil
}

// cellScanner reads a cell from left to right; rest never begins with space.
type cellScanner struct{ rest string }

func (s *cellScanner) space() { s.rest = strings.TrimLeft(s.rest, " \t\r\n") }

func (s *cellScanner) take(token string) bool {
	after, found := strings.CutPrefix(s.rest, token)
	if found {
		s.rest = after
		s.space()
	}
	return found
}

func (s *cellScanner) entry() (test, error) {
	for _, operator := range [...]string{"<=", ">=", "!=", "==", "<", ">", "="} { // the longer ones first
		if s.take(operator) {
			return s.comparison(operator)
		}
	}
	if s.rest != "" && strings.IndexByte("[(]", s.rest[0]) >= 0 {
		return s.interval()
	}
	v, ok := s.literal()
	if !ok {
		return test{}, errNotCell
	}
	return equals(v), nil
}

func equals(v literal) test { return test{low: &v, high: &v} }

func (s *cellScanner) comparison(operator string) (test, error) {
	v, ok := s.literal()
	if !ok {
		return test{}, errNotCell
	}
	t := equals(v)
	switch operator {
	case "=", "==":
		return t, nil
	case "!=":
		t.outside = true
		return t, nil
	}
	if v.kind != kindNumber && v.kind != kindText {
		return test{}, errOrder
	}
	switch operator {
	case "<":
		t.low, t.highOpen = nil, true
	case "<=":
		t.low = nil
	case ">":
		t.high, t.lowOpen = nil, true
	case ">=":
		t.high = nil
	}
	return t, nil
}

func (s *cellScanner) interval() (test, error) {
	t := test{lowOpen: s.rest[0] != '['}
	s.take(s.rest[:1])
	if v, ok := s.literal(); ok {
		t.low = &v
	}
	if !s.take("..") {
		return test{}, errNotCell
	}
	if v, ok := s.literal(); ok {
		t.high = &v
	}
	switch {
	case s.take("]"):
	case s.take(")"), s.take("["):
		t.highOpen = true
	default:
		return test{}, errNotCell
	}
	if t.low == nil && t.high == nil {
		return test{}, errNotCell
	}
	for _, end := range []*literal{t.low, t.high} {
		if end != nil && end.kind != kindNumber && end.kind != kindText {
			return test{}, errOrder
		}
	}
	if t.low != nil && t.high != nil && t.low.kind != t.high.kind {
		return test{}, errRangeKinds
	}
	return t, nil
}

func (s *cellScanner) literal() (literal, bool) {
	if s.rest == "" {
		return literal{}, false
	}
	var v literal
	var ok bool
	var length int
	switch c := s.rest[0]; {
	case c == '"' || c == '\'':
		v, length, ok = quotedLiteral(s.rest)
	case c == '-' || (c >= '0' && c <= '9'):
		v, length, ok = numberLiteral(s.rest)
	default:
		v, length, ok = wordLiteral(s.rest)
	}
	if ok {
		s.rest = s.rest[length:]
		s.space()
	}
	return v, ok
}

func wordLiteral(text string) (literal, int, bool) {
	end := 0
	for end < len(text) && (text[end] == '_' || text[end] >= 'a' && text[end] <= 'z' || text[end] >= 'A' && text[end] <= 'Z' ||
		text[end] >= '0' && text[end] <= '9') {
		end++
	}
	switch text[:end] {
	case "null", "nil":
		return literal{kind: kindNull}, end, true
	case "true", "false":
		return literal{kind: kindBool, truth: text[:end] == "true"}, end, true
	}
	return literal{}, 0, false
}

// numberLiteral reads a JSON number; "1..5" begins with the number 1.
func numberLiteral(text string) (literal, int, bool) {
	digits := func(i int) int {
		for i < len(text) && text[i] >= '0' && text[i] <= '9' {
			i++
		}
		return i
	}
	start := 0
	if text[0] == '-' {
		start = 1
	}
	end := digits(start)
	if end == start || (text[start] == '0' && end > start+1) {
		return literal{}, 0, false
	}
	if end < len(text) && text[end] == '.' {
		if fraction := digits(end + 1); fraction > end+1 {
			end = fraction
		}
	}
	if end < len(text) && (text[end] == 'e' || text[end] == 'E') {
		sign := end + 1
		if sign < len(text) && (text[sign] == '+' || text[sign] == '-') {
			sign++
		}
		if exponent := digits(sign); exponent > sign {
			end = exponent
		}
	}
	v, err := literalOf(json.Number(text[:end]))
	return v, end, err == nil
}

// quotedLiteral reads a text in double or single quotes with JSON's escapes.
func quotedLiteral(text string) (literal, int, bool) {
	quote := text[0]
	var body strings.Builder // the content as the inside of a JSON text
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == quote:
			v, err := exactjson.Decode([]byte(`"` + body.String() + `"`))
			content, ok := v.(string)
			return literal{kind: kindText, text: content}, i + 1, ok && err == nil
		case c == '\\' && i+1 < len(text):
			i++
			if text[i] == '\'' {
				body.WriteByte('\'')
			} else {
				body.WriteString(text[i-1 : i+1])
			}
		case c == '"':
			body.WriteString(`\"`)
		default:
			body.WriteByte(c)
		}
	}
	return literal{}, 0, false
}

var errNotLiteral = errors.New("must be a text, a number or a boolean")

// literalOf turns a JSON value into a literal.
func literalOf(v any) (literal, error) {
	switch v := v.(type) {
	case nil:
		return literal{kind: kindNull}, nil
	case bool:
		return literal{kind: kindBool, truth: v}, nil
	case string:
		return literal{kind: kindText, text: v}, nil
	case json.Number:
		if !exactjson.NumberFits(v.String()) {
			return literal{}, errNotLiteral
		}
		d, _, err := apd.NewFromString(v.String())
		if err != nil {
			return literal{}, errNotLiteral
		}
		return literal{kind: kindNumber, number: d}, nil
	}
	return literal{}, errNotLiteral
}
