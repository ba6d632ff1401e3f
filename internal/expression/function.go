package expression

import (
	"strconv"
	"time"

	"github.com/expr-lang/expr/ast"
)

// function is one that expressions can call.
type function struct {
	least, most int // arguments
	eval        func(*call) (any, error)
}

// anyNumber is the most arguments of a function that takes as many as there are.
const anyNumber = 100

// lookup finds a function by name.
func lookup(name string) (function, bool) {
	for _, find := range []func(string) function{
		numberFunction, listFunction, textFunction, objectFunction, dateFunction, codeFunction,
	} {
		if f := find(name); f.eval != nil {
			return f, true
		}
	}
	return function{}, false
}

// call is one call of a function with its arguments evaluated.
type call struct {
	run    *run
	name   string
	args   []any
	labels []string
}

func (c *compiler) call(n ast.Node, name string, args []ast.Node) (node, error) {
	if len(args) > 1 {
		if predicate, ok := args[1].(*ast.PredicateNode); ok {
			return c.looped(n, name, args, predicate)
		}
	}
	f, ok := lookup(name)
	if !ok {
		return nil, c.fail(n, "unknown function “%s”", name)
	}
	if len(args) < f.least || len(args) > f.most {
		return nil, c.fail(n, "%s takes %s, but there are %d", name, f.arity(), len(args))
	}
	if name == "regexMatch" || name == "regexReplace" {
		if err := c.literalPattern(args[1]); err != nil {
			return nil, err
		}
	}
	if name == "callbackUrl" {
		if id, ok := args[0].(*ast.StringNode); ok {
			addName(&c.refs.waits, id.Value)
		}
	}
	c.builds = true
	c.refs.now = c.refs.now || name == "now"
	c.refs.varies = c.refs.varies || name == "now" || name == "uuid" || name == "callbackUrl"
	compiled, err := c.all(args)
	if err != nil {
		return nil, err
	}
	labels := make([]string, len(args))
	for i, arg := range args {
		labels[i] = c.label(arg, "argument "+strconv.Itoa(i+1))
	}
	return c.at(n, func(r *run) (any, error) {
		first := len(r.args)
		for _, arg := range compiled {
			v, err := arg(r)
			if err != nil {
				return nil, err
			}
			r.args = append(r.args, v)
		}
		// No function keeps its arguments or makes another call.
		r.call = call{run: r, name: name, args: r.args[first:], labels: labels}
		v, err := f.eval(&r.call)
		clear(r.args[first:])
		r.args = r.args[:first]
		return v, err
	}), nil
}

func (f function) arity() string {
	least, most := strconv.Itoa(f.least), strconv.Itoa(f.most)
	switch {
	case f.most == 1 && f.least == 1:
		return "one argument"
	case f.least == f.most:
		return least + " arguments"
	case f.most == anyNumber:
		return "at least " + least + " and at most " + most + " arguments"
	default:
		return least + " to " + most + " arguments"
	}
}

// wrong returns the error for an argument i of the wrong kind.
func (c *call) wrong(i int, needs string) error {
	return problemf("%s needs %s, but %s is %s", c.name, needs, c.labels[i], kind(c.args[i]))
}

// has reports whether argument i was given and is not null.
func (c *call) has(i int) bool { return i < len(c.args) && c.args[i] != nil }

func (c *call) number(i int) (*number, error) {
	n, ok := c.run.number(c.args[i])
	if !ok {
		return nil, c.wrong(i, "a number")
	}
	return n, nil
}

// whole reads a whole number of at most that magnitude; without the argument
// it is otherwise.
func (c *call) whole(i, otherwise, magnitude int) (int, error) {
	if i >= len(c.args) {
		return otherwise, nil
	}
	n, err := c.number(i)
	if err != nil {
		return 0, err
	}
	w, ok := n.whole()
	if !ok || w > magnitude || w < -magnitude {
		return 0, problemf("%s needs a whole number of at most %d, but %s is not", c.name, magnitude, c.labels[i])
	}
	return w, nil
}

func (c *call) text(i int) (string, error) {
	text, ok := c.args[i].(string)
	if !ok {
		return "", c.wrong(i, "text")
	}
	return text, nil
}

// texts reads all arguments as text.
func (c *call) texts() ([]string, error) {
	list := make([]string, len(c.args))
	for i := range c.args {
		var err error
		if list[i], err = c.text(i); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (c *call) list(i int) ([]any, error) {
	list, ok := c.args[i].([]any)
	if !ok {
		return nil, c.wrong(i, "a list")
	}
	return list, nil
}

func (c *call) object(i int) (map[string]any, error) {
	object, ok := c.args[i].(map[string]any)
	if !ok {
		return nil, c.wrong(i, "an object")
	}
	return object, nil
}

func (c *call) time(i int) (time.Time, error) {
	t, ok := ToTime(c.args[i])
	if !ok {
		return time.Time{}, c.wrong(i, "a date, or text such as 2026-01-31 or 2026-01-31T08:00:00Z")
	}
	return t, nil
}
