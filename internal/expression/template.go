package expression

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// partsMax is how many {{ … }} a template has at most.
const partsMax = 1_000

// Template is text with expressions in {{ … }}. It is safe for concurrent use.
type Template struct {
	refs
	source string
	parts  []part
}

// part is a piece of a template: an expression, or else text.
type part struct {
	text       string
	expression *Expression
}

// Part is one piece of an evaluated template.
type Part struct {
	Literal bool   // written in the template, not filled in
	Text    string // the piece as text: null is empty, lists and objects are JSON
	Value   any    // the value that was filled in
}

// CompileTemplate compiles a template. The error is an *Error with a position within the
// whole template.
func CompileTemplate(text string, scope Scope) (*Template, error) {
	t := &Template{source: text}
	if !utf8.ValidString(text) {
		return nil, &Error{Message: "the text is not valid UTF-8", Position: Position{1, 1}}
	}
	if !strings.Contains(text, opening) {
		if text != "" {
			t.parts = []part{{text: text}}
		}
		return t, nil
	}
	runes := []rune(text)
	lines := lineStarts(runes)
	for at := 0; at < len(runes); {
		start, end, ok := nextExpression(runes, at)
		if !ok {
			return nil, &Error{Message: "{{ is not closed; add }}", Position: positionIn(lines, start)}
		}
		if start > at {
			t.parts = append(t.parts, part{text: string(runes[at:start])})
		}
		if start == len(runes) {
			break
		}
		if len(t.parts) > 2*partsMax {
			return nil, &Error{Message: "a text must have at most 1,000 {{ … }}", Position: positionIn(lines, start)}
		}
		inner := runes[start+2 : end]
		x, err := compile(&source{text: string(inner), runes: inner, lines: lines, start: start + 2}, scope)
		if err != nil {
			return nil, err
		}
		t.parts = append(t.parts, part{expression: x})
		t.merge(x.refs)
		at = end + 2
	}
	t.parts = slices.Clip(t.parts)
	return t, nil
}

// Eval evaluates the template. If it is exactly one {{ … }}, the value keeps its type;
// otherwise the result is text. The error is an *Error.
func (t *Template) Eval(env *Env) (any, error) {
	r := newRun(env)
	defer r.done()
	return t.evalIn(r)
}

func (t *Template) evalIn(r *run) (any, error) {
	if text, ok := t.Literal(); ok {
		return text, nil
	}
	if t.Whole() {
		v, err := t.parts[0].expression.evalIn(r)
		if err != nil {
			return nil, err
		}
		return seal(v), nil
	}
	var b strings.Builder
	for _, p := range t.parts {
		piece, err := p.evalIn(r)
		if err != nil {
			return nil, err
		}
		b.WriteString(piece.Text)
	}
	return b.String(), nil
}

// EvalParts fills the template and returns its pieces in order. The error is
// an *Error.
func (t *Template) EvalParts(env *Env) ([]Part, error) {
	r := newRun(env)
	defer r.done()
	parts := make([]Part, len(t.parts))
	for i, p := range t.parts {
		var err error
		if parts[i], err = p.evalIn(r); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

func (p part) evalIn(r *run) (Part, error) {
	if p.expression == nil {
		return Part{Literal: true, Text: p.text, Value: p.text}, nil
	}
	v, err := p.expression.evalIn(r)
	if err != nil {
		return Part{}, err
	}
	text, err := r.show(v)
	if err == nil {
		err = r.text(len(text))
	}
	if err != nil {
		return Part{}, place(err, p.expression.start)
	}
	return Part{Text: text, Value: seal(v)}, nil
}

// Literal returns the text of a template without any {{ … }}.
func (t *Template) Literal() (string, bool) {
	if len(t.parts) == 0 {
		return "", true
	}
	return t.parts[0].text, len(t.parts) == 1 && t.parts[0].expression == nil
}

// Constant returns the value of a template that reads nothing: no root, no
// time, no id and no address. One that cannot be evaluated has none.
func (t *Template) Constant() (any, bool) {
	if t.varies {
		return nil, false
	}
	v, err := t.Eval(&Env{})
	return v, err == nil
}

// Whole reports whether the template is exactly one {{ … }}.
func (t *Template) Whole() bool { return len(t.parts) == 1 && t.parts[0].expression != nil }

// Source returns the text that was compiled.
func (t *Template) Source() string { return t.source }
