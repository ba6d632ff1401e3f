package expression

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// Expression is a compiled expression. It is safe for concurrent use.
type Expression struct {
	refs
	eval      node
	vars      int                 // variables and loop positions
	builds    bool                // whether the result may be a new list or object
	isLiteral bool                // whether it is one
	patterns  map[string]*pattern // regular expressions written as literals
	start     Position
	refusal   *Error // why it can be no condition
}

// Compile reads an expression and checks it: its syntax, that every root and
// function exists and that no method is called. The error is an *Error.
func Compile(source string, scope Scope) (*Expression, error) {
	return compile(newSource(source), scope)
}

func compile(s *source, scope Scope) (*Expression, error) {
	root, err := s.parse()
	if err != nil {
		return nil, err
	}
	c := &compiler{source: s, scope: scope, lets: map[string]int{}, patterns: map[string]*pattern{}}
	eval, err := c.compile(root)
	if err != nil {
		return nil, err
	}
	return &Expression{
		eval: eval, refs: c.refs, vars: c.vars, builds: c.builds,
		isLiteral: isLiteral(root), patterns: c.patterns, start: s.position(0), refusal: c.refuse(root),
	}, nil
}

// refuse returns the error of an expression that, by its form, can return neither true nor
// false.
func (c *compiler) refuse(n ast.Node) *Error {
	given := ""
	switch n := n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		given = "a number"
	case *ast.StringNode:
		given = "text"
	case *ast.NilNode:
		given = "null"
	case *ast.IdentifierNode:
		if n.Value == "null" {
			given = "null"
		}
	case *ast.ArrayNode:
		given = "a list"
	case *ast.MapNode:
		given = "an object"
	case *ast.UnaryNode:
		if n.Operator == "not" || n.Operator == "!" {
			return c.refuse(n.Node)
		}
		given = "a number"
	case *ast.BinaryNode:
		switch n.Operator {
		case "and", "&&", "or", "||":
			return cmp.Or(c.refuse(n.Left), c.refuse(n.Right))
		case "..":
			given = "a list"
		case "+":
			given = "a number or text"
		case "-", "*", "/", "%", "**", "^":
			given = "a number"
		}
	}
	if given == "" {
		return nil
	}
	return place(problemf("a condition must be true or false, but this is %s", given), c.source.position(n.Location().From))
}

func isLiteral(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.NilNode, *ast.BoolNode, *ast.StringNode, *ast.IntegerNode, *ast.FloatNode:
		return true
	case *ast.IdentifierNode:
		return n.Value == "null"
	case *ast.UnaryNode:
		switch n.Node.(type) {
		case *ast.IntegerNode, *ast.FloatNode:
			return n.Operator == "-"
		}
	}
	return false
}

// Eval evaluates the expression. The result is an exactjson value; the error
// is an *Error.
func (x *Expression) Eval(env *Env) (any, error) {
	r := newRun(env)
	defer r.done()
	v, err := x.evalIn(r)
	if err != nil {
		return nil, err
	}
	return seal(v), nil
}

// CheckCondition returns an *Error if the expression cannot be a condition, because it
// returns neither true nor false for any input.
func (x *Expression) CheckCondition() error {
	if x.refusal == nil {
		return nil
	}
	return x.refusal
}

// EvalBool evaluates a condition. A result that is not a boolean is an error.
func (x *Expression) EvalBool(env *Env) (bool, error) {
	r := newRun(env)
	defer r.done()
	v, err := x.evalIn(r)
	if err != nil {
		return false, err
	}
	met, ok := v.(bool)
	if !ok {
		return false, place(problemf("a condition must be true or false, but it is %s", kind(v)), x.start)
	}
	return met, nil
}

// EvalList evaluates an expression that must return a list.
func (x *Expression) EvalList(env *Env) ([]any, error) {
	v, err := x.Eval(env)
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok {
		return nil, place(problemf("a list is needed here, but it is %s", kind(v)), x.start)
	}
	return list, nil
}

// evalIn evaluates within a run that may serve several expressions.
func (x *Expression) evalIn(r *run) (any, error) {
	r.frame(x.vars, x.patterns)
	v, err := x.eval(r)
	if err != nil {
		return nil, place(err, x.start)
	}
	if x.builds {
		if _, err := measure(v, 0, memoryMax); err != nil {
			return nil, place(err, x.start)
		}
	}
	return v, nil
}

// Literal returns the value of an expression that is a literal: a text, a
// number with or without a minus, true, false or null.
func (x *Expression) Literal() (any, bool) {
	if !x.isLiteral {
		return nil, false
	}
	v, err := x.Eval(nil)
	return v, err == nil
}

// names is a set of names.
type names map[string]bool

func (n names) sorted() []string { return slices.Sorted(maps.Keys(n)) }

// refs are the references of an expression, a template or a tree: the tasks and fields
// that it reads, the tasks that it passes to callbackUrl, and whether it reads the time.
type refs struct {
	tasks, fieldPaths, waits names
	now                      bool
	varies                   bool // whether the result depends on more than the text
}

// TaskRefs returns the ids of the tasks that it reads, sorted.
func (r *refs) TaskRefs() []string { return r.tasks.sorted() }

// WaitRefs returns the ids of the tasks that callbackUrl names, sorted; those
// that are computed are not among them.
func (r *refs) WaitRefs() []string { return r.waits.sorted() }

// ReadsNow reports whether the result may depend on when the task began.
func (r *refs) ReadsNow() bool { return r.now }

func (r *refs) addTask(id string) {
	r.varies = true
	addName(&r.tasks, id)
}

func (r *refs) addField(path []string) {
	r.varies = true
	addName(&r.fieldPaths, strings.Join(path, "."))
}

func (r *refs) merge(other refs) {
	r.now = r.now || other.now
	r.varies = r.varies || other.varies
	for id := range other.tasks {
		r.addTask(id)
	}
	for path := range other.fieldPaths {
		addName(&r.fieldPaths, path)
	}
	for id := range other.waits {
		addName(&r.waits, id)
	}
}

func addName(set *names, name string) {
	if *set == nil {
		*set = names{}
	}
	(*set)[name] = true
}
