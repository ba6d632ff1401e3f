package expression

// Template is text with expressions in {{ … }}. It is safe for concurrent use.
type Template struct{ source string }

// Part is one piece of an evaluated template.
type Part struct {
	Literal bool   // written in the template, not filled in
	Text    string // the piece as text: null is empty, objects and arrays are JSON
	Value   any    // the value that was filled in
}

// CompileTemplate reads a template. The error is an *Error.
func CompileTemplate(source string, scope Scope) (*Template, error) {
	_ = scope
	return &Template{source: source}, nil
}

// Eval fills the template. Exactly one {{ … }} and nothing around it keeps the
// type of its value, anything else gives text. The error is an *Error.
func (t *Template) Eval(env *Env) (any, error) { _ = env; return t.source, nil }

// EvalParts fills the template and returns its pieces in order.
func (t *Template) EvalParts(env *Env) ([]Part, error) { _ = env; return nil, nil }

// Literal returns the text of a template without any {{ … }}.
func (t *Template) Literal() (string, bool) { return t.source, true }

// Whole reports whether the template is exactly one {{ … }}.
func (t *Template) Whole() bool { return false }

// Source returns the text that was compiled.
func (t *Template) Source() string { return t.source }

// TaskRefs returns the ids of the tasks that the template reads, sorted.
func (t *Template) TaskRefs() []string { return nil }

// FieldRefs returns the first segments of the $.name that it reads, sorted.
func (t *Template) FieldRefs() []string { return nil }
