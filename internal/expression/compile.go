package expression

import (
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"

	"tranche/internal/exactjson"
)

// nestingMax bounds how deep the parts of an expression contain each other; a
// sum or a condition of n terms counts n.
const nestingMax = 1_000

// node evaluates a part of an expression.
type node func(*run) (any, error)

// compiler turns syntax into nodes and refuses everything that is unknown.
type compiler struct {
	source   *source
	scope    Scope
	depth    int
	lets     map[string]int // name of a let to its variable
	loops    []loopVars     // the predicates around, innermost last
	vars     int
	builds   bool
	refs     refs
	patterns map[string]*pattern
}

func (c *compiler) fail(n ast.Node, format string, args ...any) error {
	return c.source.fail(n.Location(), format, args...)
}

// at counts eval as one step and adds a position to its errors.
func (c *compiler) at(n ast.Node, eval node) node {
	position := c.source.position(n.Location().From)
	return func(r *run) (any, error) {
		if err := r.step(1); err != nil {
			return nil, place(err, position)
		}
		v, err := eval(r)
		if err != nil {
			return nil, place(err, position)
		}
		return v, nil
	}
}

func (c *compiler) variable() int {
	c.vars++
	return c.vars - 1
}

func constant(v any) node {
	return func(*run) (any, error) { return v, nil }
}

func (c *compiler) compile(n ast.Node) (node, error) {
	if c.depth++; c.depth > nestingMax {
		return nil, c.fail(n, "the expression must not be nested deeper than %d levels", nestingMax)
	}
	defer func() { c.depth-- }()
	switch n := n.(type) {
	case *ast.NilNode:
		return constant(nil), nil
	case *ast.BoolNode:
		return constant(n.Value), nil
	case *ast.StringNode:
		return c.text(n)
	case *ast.IntegerNode, *ast.FloatNode:
		return c.number(n)
	case *ast.IdentifierNode:
		return c.root(n)
	case *ast.PointerNode:
		return c.pointer(n)
	case *ast.MemberNode:
		return c.member(n)
	case *ast.ChainNode:
		return c.compile(n.Node)
	case *ast.SliceNode:
		return c.slice(n)
	case *ast.UnaryNode:
		return c.unary(n)
	case *ast.BinaryNode:
		return c.binary(n)
	case *ast.ConditionalNode:
		return c.conditional(n)
	case *ast.VariableDeclaratorNode:
		return c.let(n)
	case *ast.SequenceNode:
		return c.sequence(n)
	case *ast.ArrayNode:
		return c.array(n)
	case *ast.MapNode:
		return c.object(n)
	case *ast.BuiltinNode:
		return c.call(n, n.Name, n.Arguments)
	case *ast.CallNode:
		name, ok := n.Callee.(*ast.IdentifierNode)
		if !ok {
			return nil, c.fail(n, "only functions can be called, not members of a value")
		}
		return c.call(n, name.Value, n.Arguments)
	case *ast.BytesNode:
		return nil, c.fail(n, "remove the b before the quotation mark; a text has no prefix")
	default:
		return nil, c.fail(n, "this cannot be used in an expression")
	}
}

func (c *compiler) all(nodes []ast.Node) ([]node, error) {
	compiled := make([]node, len(nodes))
	for i, n := range nodes {
		var err error
		if compiled[i], err = c.compile(n); err != nil {
			return nil, err
		}
	}
	return compiled, nil
}

func (c *compiler) text(n *ast.StringNode) (node, error) {
	if strings.IndexByte(n.Value, 0) >= 0 {
		return nil, c.fail(n, "a text must not contain a NUL character")
	}
	return constant(n.Value), nil
}

// number takes the digits of a literal from the source: the parser's own
// value went through an int64 or a float64.
func (c *compiler) number(n ast.Node) (node, error) {
	literal := strings.ReplaceAll(c.source.literal(n.Location()), "_", "")
	if integer, ok := n.(*ast.IntegerNode); ok && isBased(literal) {
		literal = strconv.Itoa(integer.Value)
	}
	value, ok := parseNumber(plainLiteral(literal))
	if !ok {
		return nil, c.fail(n, "a number must have at most %d digits and an exponent within ±%d",
			exactjson.DigitsMax, exactjson.ExponentMax)
	}
	return constant(value), nil
}

// plainLiteral writes a literal as JSON would: 0.5 for .5, 1 for 1. and for 01.
func plainLiteral(literal string) string {
	mantissa, exponent := literal, ""
	if i := strings.IndexAny(literal, "eE"); i >= 0 {
		mantissa, exponent = literal[:i], literal[i:]
	}
	mantissa = strings.TrimLeft(strings.TrimSuffix(mantissa, "."), "0")
	if mantissa == "" || mantissa[0] == '.' {
		mantissa = "0" + mantissa
	}
	return mantissa + exponent
}

// condition compiles n, which must be true or false.
func (c *compiler) condition(n ast.Node) (func(*run) (bool, error), error) {
	eval, err := c.compile(n)
	if err != nil {
		return nil, err
	}
	position := c.source.position(n.Location().From)
	label := c.label(n, "this")
	return func(r *run) (bool, error) {
		v, err := eval(r)
		if err != nil {
			return false, err
		}
		met, ok := v.(bool)
		if !ok {
			return false, place(problemf("a condition must be true or false, but %s is %s", label, kind(v)), position)
		}
		return met, nil
	}, nil
}

func (c *compiler) conditional(n *ast.ConditionalNode) (node, error) {
	condition, err := c.condition(n.Cond)
	if err != nil {
		return nil, err
	}
	branches, err := c.all([]ast.Node{n.Exp1, n.Exp2})
	if err != nil {
		return nil, err
	}
	return c.at(n, func(r *run) (any, error) {
		met, err := condition(r)
		if err != nil {
			return nil, err
		}
		if met {
			return branches[0](r)
		}
		return branches[1](r)
	}), nil
}

func (c *compiler) let(n *ast.VariableDeclaratorNode) (node, error) {
	if isRoot(n.Name) {
		return nil, c.fail(n, "“%s” is already in use; choose another name", n.Name)
	}
	value, err := c.compile(n.Value)
	if err != nil {
		return nil, err
	}
	outer, shadows := c.lets[n.Name]
	slot := c.variable()
	c.lets[n.Name] = slot
	body, err := c.compile(n.Expr)
	if delete(c.lets, n.Name); shadows {
		c.lets[n.Name] = outer
	}
	if err != nil {
		return nil, err
	}
	return c.at(n, func(r *run) (any, error) {
		v, err := value(r)
		if err != nil {
			return nil, err
		}
		r.vars[slot] = v
		return body(r)
	}), nil
}

// sequence evaluates all of its parts and is the last.
func (c *compiler) sequence(n *ast.SequenceNode) (node, error) {
	parts, err := c.all(n.Nodes)
	if err != nil {
		return nil, err
	}
	return func(r *run) (any, error) {
		var last any
		for _, part := range parts {
			var err error
			if last, err = part(r); err != nil {
				return nil, err
			}
		}
		return last, nil
	}, nil
}

func (c *compiler) array(n *ast.ArrayNode) (node, error) {
	c.builds = true
	items, err := c.all(n.Nodes)
	if err != nil {
		return nil, err
	}
	return c.at(n, func(r *run) (any, error) {
		if err := r.grow(len(items) * itemBytes); err != nil {
			return nil, err
		}
		list := make([]any, len(items))
		for i, item := range items {
			v, err := item(r)
			if err != nil {
				return nil, err
			}
			list[i] = seal(v)
		}
		return list, nil
	}), nil
}

func (c *compiler) object(n *ast.MapNode) (node, error) {
	c.builds = true
	keys := make([]node, len(n.Pairs))
	values := make([]node, len(n.Pairs))
	for i, part := range n.Pairs {
		pair, ok := part.(*ast.PairNode)
		if !ok {
			return nil, c.fail(n, "each member of an object must be a name and a value")
		}
		var err error
		if keys[i], err = c.key(pair.Key); err != nil {
			return nil, err
		}
		if values[i], err = c.compile(pair.Value); err != nil {
			return nil, err
		}
	}
	return c.at(n, func(r *run) (any, error) {
		if err := r.grow(len(keys) * memberBytes); err != nil {
			return nil, err
		}
		object := make(map[string]any, len(keys))
		for i := range keys {
			key, err := keys[i](r)
			if err != nil {
				return nil, err
			}
			name, ok := key.(string)
			if !ok {
				return nil, problemf("the name of a member must be text, but it is %s", kind(key))
			}
			v, err := values[i](r)
			if err != nil {
				return nil, err
			}
			object[name] = seal(v)
		}
		return object, nil
	}), nil
}

// key is the name of a member. A number is taken from the source as written.
func (c *compiler) key(n ast.Node) (node, error) {
	if name, ok := n.(*ast.StringNode); ok && name.Value != "" && strings.IndexByte(".0123456789", name.Value[0]) >= 0 {
		if literal := c.source.literal(n.Location()); literal[0] != '"' && literal[0] != '\'' && literal[0] != '`' {
			return constant(literal), nil
		}
	}
	return c.compile(n)
}

// label is how an error names a part: the path that was written, or else.
func (c *compiler) label(n ast.Node, otherwise string) string {
	if path, ok := c.path(n); ok {
		return path
	}
	return otherwise
}

func (c *compiler) path(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.IdentifierNode:
		return n.Value, n.Value != "null"
	case *ast.PointerNode:
		return "#" + n.Name, true
	case *ast.ChainNode:
		return c.path(n.Node)
	case *ast.MemberNode:
		base, ok := c.path(n.Node)
		if !ok {
			return "", false
		}
		switch property := n.Property.(type) {
		case *ast.StringNode:
			return strings.TrimPrefix(base, "#") + "." + property.Value, true
		case *ast.IntegerNode:
			return base + "[" + c.source.literal(property.Location()) + "]", true
		}
	}
	return "", false
}
