package expression

// Limits of one evaluation: of one expression, one template or one tree.
const (
	StepsMax  = 100_000    // operations
	MemoryMax = 10_000_000 // bytes of text, arrays and objects made, counted when made
)

// SourceMax is the length of a source in characters.
const SourceMax = 10_000

// Expression is a compiled expression. It is safe for concurrent use.
type Expression struct{ source string }

// Compile reads an expression and checks it: its syntax, that every root and
// function exists and that no method is called. The error is an *Error.
func Compile(source string, scope Scope) (*Expression, error) {
	_ = scope
	return &Expression{source: source}, nil
}

// Eval evaluates the expression. The result is an exactjson value; the error
// is an *Error.
func (x *Expression) Eval(env *Env) (any, error) { _ = env; return nil, nil }

// EvalBool evaluates a condition. A result that is not a boolean is an error.
func (x *Expression) EvalBool(env *Env) (bool, error) { _ = env; return false, nil }

// Source returns the text that was compiled.
func (x *Expression) Source() string { return x.source }

// TaskRefs returns the ids of the tasks that the expression reads, sorted.
func (x *Expression) TaskRefs() []string { return nil }

// FieldRefs returns the first segments of the $.name that it reads, sorted.
func (x *Expression) FieldRefs() []string { return nil }

// Constant returns the value of an expression that is a literal.
func (x *Expression) Constant() (any, bool) { return nil, false }
