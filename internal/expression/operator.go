package expression

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"
)

func (c *compiler) unary(n *ast.UnaryNode) (node, error) {
	if n.Operator == "not" || n.Operator == "!" {
		condition, err := c.condition(n.Node)
		if err != nil {
			return nil, err
		}
		return c.at(n, func(r *run) (any, error) {
			met, err := condition(r)
			return !met, err
		}), nil
	}
	eval, err := c.compile(n.Node)
	if err != nil {
		return nil, err
	}
	label := c.label(n.Node, "the value after it")
	return c.at(n, func(r *run) (any, error) {
		v, err := eval(r)
		if err != nil {
			return nil, err
		}
		x, ok := r.number(v)
		if !ok {
			return nil, problemf("%s needs a number, but %s is %s", n.Operator, label, kind(v))
		}
		if n.Operator == "+" {
			return v, nil
		}
		return boxed(negate(r.newNumber(), x))
	}), nil
}

// boxed keeps a nil *number from becoming a value.
func boxed(n *number, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return n, nil
}

// sides are the operands of an operator.
type sides struct {
	operator    string
	left, right node
	leftLabel   string
	rightLabel  string
}

// wrong returns the error for an argument i of the wrong kind.
func (s *sides) wrong(needs string, a, b any, fits func(any) bool) error {
	label, v := s.leftLabel, a
	if fits(a) {
		label, v = s.rightLabel, b
	}
	return problemf("%s needs %s, but %s is %s", s.operator, needs, label, kind(v))
}

func isNumber(v any) bool {
	_, ok := toNumber(v)
	return ok
}

func isText(v any) bool {
	_, ok := v.(string)
	return ok
}

func isOrdered(v any) bool {
	_, isTime := ToTime(v)
	return isTime || isNumber(v) || isText(v)
}

func (c *compiler) binary(n *ast.BinaryNode) (node, error) {
	switch n.Operator {
	case "and", "&&":
		return c.logical(n, false)
	case "or", "||":
		return c.logical(n, true)
	}
	left, err := c.compile(n.Left)
	if err != nil {
		return nil, err
	}
	right, err := c.compile(n.Right)
	if err != nil {
		return nil, err
	}
	if n.Operator == "??" {
		return c.at(n, func(r *run) (any, error) {
			if v, err := left(r); v != nil || err != nil {
				return v, err
			}
			return right(r)
		}), nil
	}
	operation, err := c.operation(n)
	if err != nil {
		return nil, err
	}
	s := &sides{
		operator: n.Operator, left: left, right: right,
		leftLabel: c.label(n.Left, "its left side"), rightLabel: c.label(n.Right, "its right side"),
	}
	return c.at(n, func(r *run) (any, error) {
		a, err := s.left(r)
		if err != nil {
			return nil, err
		}
		b, err := s.right(r)
		if err != nil {
			return nil, err
		}
		return operation(r, s, a, b)
	}), nil
}

// logical is and (decided by false) or or (decided by true): the right side is
// evaluated only when the left one does not decide.
func (c *compiler) logical(n *ast.BinaryNode, decisive bool) (node, error) {
	left, err := c.condition(n.Left)
	if err != nil {
		return nil, err
	}
	right, err := c.condition(n.Right)
	if err != nil {
		return nil, err
	}
	return c.at(n, func(r *run) (any, error) {
		met, err := left(r)
		if err != nil || met == decisive {
			return met, err
		}
		return boxedBool(right(r))
	}), nil
}

func boxedBool(b bool, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}

// operation computes the result of an operator from the values of its sides.
type operation func(r *run, s *sides, a, b any) (any, error)

func (c *compiler) operation(n *ast.BinaryNode) (operation, error) {
	switch n.Operator {
	case "+":
		return plus, nil
	case "-":
		return arithmetic(subtract), nil
	case "*":
		return arithmetic(multiply), nil
	case "/":
		return arithmetic(divide), nil
	case "%":
		return arithmetic(remainder), nil
	case "**", "^":
		return raise, nil
	case "==":
		return func(r *run, _ *sides, a, b any) (any, error) { return boxedBool(r.equal(a, b)) }, nil
	case "!=":
		return func(r *run, _ *sides, a, b any) (any, error) {
			same, err := r.equal(a, b)
			return boxedBool(!same, err)
		}, nil
	case "<":
		return ordering(func(order int) bool { return order < 0 }), nil
	case "<=":
		return ordering(func(order int) bool { return order <= 0 }), nil
	case ">":
		return ordering(func(order int) bool { return order > 0 }), nil
	case ">=":
		return ordering(func(order int) bool { return order >= 0 }), nil
	case "..":
		c.builds = true
		return span, nil
	case "in":
		return within, nil
	case "matches":
		return c.matches(n)
	case "contains":
		return textual(strings.Contains), nil
	case "startsWith":
		return textual(strings.HasPrefix), nil
	case "endsWith":
		return textual(strings.HasSuffix), nil
	default:
		return nil, c.fail(n, "the operator %s does not exist", n.Operator)
	}
}

func arithmetic(compute func(n, a, b *number) (*number, error)) operation {
	return func(r *run, s *sides, a, b any) (any, error) {
		x, left := r.number(a)
		y, right := r.number(b)
		if !left || !right {
			return nil, s.wrong("two numbers", a, b, isNumber)
		}
		return boxed(compute(r.newNumber(), x, y))
	}
}

// plus adds two numbers or joins two texts.
func plus(r *run, s *sides, a, b any) (any, error) {
	x, left := r.number(a)
	y, right := r.number(b)
	if left && right {
		return boxed(add(r.newNumber(), x, y))
	}
	t, isLeft := a.(string)
	u, isRight := b.(string)
	if !isLeft || !isRight {
		fits := isNumber
		if isLeft {
			fits = isText
		}
		return nil, s.wrong("two numbers or two texts", a, b, fits)
	}
	if err := r.text(len(t) + len(u)); err != nil {
		return nil, err
	}
	return t + u, nil
}

// powerSteps is the cost of raising to a power. A power that is not whole takes logarithms
// and costs powerLogSteps.
const (
	powerSteps    = 50
	powerLogSteps = 2_000
)

func raise(r *run, s *sides, a, b any) (any, error) {
	x, left := toNumber(a)
	y, right := toNumber(b)
	if !left || !right {
		return nil, s.wrong("two numbers", a, b, isNumber)
	}
	return boxed(r.power(x, y))
}

func (r *run) power(x, y *number) (*number, error) {
	steps := powerSteps
	if _, whole := y.whole(); !whole {
		steps = powerLogSteps
	}
	if err := r.step(steps); err != nil {
		return nil, err
	}
	return power(x, y)
}

func ordering(holds func(order int) bool) operation {
	return func(r *run, s *sides, a, b any) (any, error) {
		order, err := r.compare(a, b)
		if err == errNotOrdered { //nolint:errorlint // a constant that is never wrapped
			if isOrdered(a) && isOrdered(b) {
				return nil, problemf("%s needs two numbers, two texts or two dates, but %s is %s and %s is %s",
					s.operator, s.leftLabel, kind(a), s.rightLabel, kind(b))
			}
			return nil, s.wrong("two numbers, two texts or two dates", a, b, isOrdered)
		}
		if err != nil {
			return nil, err
		}
		return holds(order), nil
	}
}

// span is the list of the whole numbers from a to b, both included.
func span(r *run, s *sides, a, b any) (any, error) {
	x, left := toNumber(a)
	y, right := toNumber(b)
	if !left || !right {
		return nil, s.wrong("two numbers", a, b, isNumber)
	}
	from, fromWhole := x.whole()
	to, toWhole := y.whole()
	if !fromWhole || !toWhole {
		return nil, problem(".. needs two whole numbers")
	}
	if from > to {
		return []any{}, nil
	}
	count := to - from + 1
	if count > stepsMax {
		return nil, errSteps
	}
	if err := r.list(count); err != nil {
		return nil, err
	}
	list := make([]any, count)
	for i := range list {
		list[i] = json.Number(strconv.Itoa(from + i))
	}
	return list, nil
}

// within looks for an element of a list or a member of an object; nothing is
// in null.
func within(r *run, s *sides, a, b any) (any, error) {
	switch b := b.(type) {
	case nil:
		return false, nil
	case []any:
		i, err := r.find(b, a)
		return i >= 0, err
	case map[string]any:
		name, ok := a.(string)
		_, present := b[name]
		return ok && present, nil
	default:
		return nil, problemf("in needs a list or an object, but %s is %s", s.rightLabel, kind(b))
	}
}

// find returns the place of v in a list, or -1.
func (r *run) find(list []any, v any) (int, error) {
	for i, item := range list {
		if err := r.step(1); err != nil {
			return 0, err
		}
		same, err := r.equal(item, v)
		if err != nil {
			return 0, err
		}
		if same {
			return i, nil
		}
	}
	return -1, nil
}

func textual(holds func(text, part string) bool) operation {
	return func(r *run, s *sides, a, b any) (any, error) {
		text, left := a.(string)
		part, right := b.(string)
		if !left || !right {
			return nil, s.wrong("two texts", a, b, isText)
		}
		if err := r.scan(len(text)); err != nil {
			return nil, err
		}
		return holds(text, part), nil
	}
}

func (c *compiler) matches(n *ast.BinaryNode) (operation, error) {
	if err := c.literalPattern(n.Right); err != nil {
		return nil, err
	}
	return func(r *run, s *sides, a, b any) (any, error) {
		text, left := a.(string)
		part, right := b.(string)
		if !left || !right {
			return nil, s.wrong("two texts", a, b, isText)
		}
		return boxedBool(r.matches(text, part))
	}, nil
}
