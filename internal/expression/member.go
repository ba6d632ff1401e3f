package expression

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
)

// Members that exist; reading another is a mistake in the definition.
const (
	taskMembers      = "output status error"
	executionMembers = "id createdAt attempt borrowerId isTest"
)

// isRoot reports whether an expression of some scope has the root.
func isRoot(name string) bool {
	switch name {
	case "input", "tasks", "execution", "custom", "item", "index", "last", "$", "null", "nil", "true", "false":
		return true
	default:
		return false
	}
}

// roots lists the roots that expressions can use here, for errors.
func (c *compiler) roots() string {
	list := []string{"input", "tasks", "execution", "custom"}
	if c.scope.Item {
		list = append(list, "item")
	}
	if c.scope.Item || c.scope.Last {
		list = append(list, "index")
	}
	if c.scope.Last {
		list = append(list, "last")
	}
	if c.scope.Column {
		list = append(list, "$")
	}
	if c.scope.Fields {
		list = append(list, "$.name")
	}
	return strings.Join(list, ", ")
}

// root compiles a name that stands alone or before its members.
func (c *compiler) root(n *ast.IdentifierNode) (node, error) {
	if slot, ok := c.lets[n.Value]; ok {
		return func(r *run) (any, error) { return r.vars[slot], nil }, nil
	}
	if n.Value == "null" {
		return constant(nil), nil
	}
	c.refs.varies = true
	switch name := n.Value; {
	case name == "input":
		return func(r *run) (any, error) { return r.env.Input, nil }, nil
	case name == "custom":
		return func(r *run) (any, error) { return r.env.Custom, nil }, nil
	case name == "execution":
		return func(r *run) (any, error) { return r.env.Execution.Value(), nil }, nil
	case name == "item" && c.scope.Item:
		return func(r *run) (any, error) { return r.env.Item, nil }, nil
	case name == "index" && (c.scope.Item || c.scope.Last):
		return func(r *run) (any, error) { return newNumber(r.env.Index), nil }, nil
	case name == "last" && c.scope.Last:
		return func(r *run) (any, error) { return r.env.Last, nil }, nil
	case name == "$" && c.scope.Column:
		return func(r *run) (any, error) { return r.env.Column, nil }, nil
	case name == "tasks":
		return nil, c.fail(n, `tasks must be followed by the id of a task, for example tasks.score or tasks["a-b"]`)
	case name == "$" && c.scope.Fields:
		return nil, c.fail(n, "$ must be followed by the name of a field, for example $.name")
	case name == "$":
		return nil, c.fail(n, "$ cannot be used here; only transform fields and decision table cells have it")
	default:
		return nil, c.fail(n, "“%s” does not exist; an expression can use %s", name, c.roots())
	}
}

// asObject makes a nil map null.
func asObject(m map[string]any) any {
	if m == nil {
		return nil
	}
	return m
}

// rootName returns the name if n is a root, or "".
func (c *compiler) rootName(n ast.Node) string {
	if chain, ok := n.(*ast.ChainNode); ok {
		n = chain.Node
	}
	name, ok := n.(*ast.IdentifierNode)
	if !ok {
		return ""
	}
	if _, isLet := c.lets[name.Value]; isLet {
		return ""
	}
	return name.Value
}

// fieldPath returns the names of $.a.b, or nil if n is anything else.
func (c *compiler) fieldPath(n ast.Node) []string {
	if chain, ok := n.(*ast.ChainNode); ok {
		n = chain.Node
	}
	member, ok := n.(*ast.MemberNode)
	if !ok {
		return nil
	}
	name, isName := member.Property.(*ast.StringNode)
	if !isName {
		return nil
	}
	if c.rootName(member.Node) == "$" {
		return []string{name.Value}
	}
	if path := c.fieldPath(member.Node); path != nil {
		return append(path, name.Value)
	}
	return nil
}

// field reads another field of a transform, or a part of one.
func (c *compiler) field(n ast.Node, path []string) node {
	c.refs.addField(path)
	return c.at(n, func(r *run) (any, error) {
		v := r.env.Fields[path[0]]
		for _, name := range path[1:] {
			object, _ := v.(map[string]any)
			v = object[name]
		}
		return v, nil
	})
}

func (c *compiler) member(n *ast.MemberNode) (node, error) {
	if path := c.fieldPath(n); path != nil && c.scope.Fields {
		return c.field(n, path), nil
	}
	name, isName := n.Property.(*ast.StringNode)
	switch root := c.rootName(n.Node); {
	case root == "tasks":
		if !isName {
			return nil, c.fail(n, `the id of a task must be written out, for example tasks.score or tasks["a-b"]`)
		}
		c.refs.addTask(name.Value)
		return func(r *run) (any, error) { return r.env.Tasks[name.Value].Value(), nil }, nil
	case root == "$" && c.scope.Fields && !isName:
		return nil, c.fail(n, "the name of a field must be written out, for example $.name")
	case root == "execution" && isName && !listed(executionMembers, name.Value):
		return nil, c.fail(n, "execution has no “%s”, only %s", name.Value, commas(executionMembers))
	}
	if isName {
		if eval, err := c.memberOfRoot(n, name.Value); eval != nil || err != nil {
			return eval, err
		}
	}
	base, err := c.compile(n.Node)
	if err != nil {
		return nil, err
	}
	if isName {
		return c.at(n, func(r *run) (any, error) {
			v, err := base(r)
			if err != nil {
				return nil, err
			}
			object, _ := v.(map[string]any)
			return object[name.Value], nil
		}), nil
	}
	key, err := c.compile(n.Property)
	if err != nil {
		return nil, err
	}
	return c.at(n, func(r *run) (any, error) {
		v, err := base(r)
		if err != nil {
			return nil, err
		}
		k, err := key(r)
		if err != nil {
			return nil, err
		}
		return pick(v, k)
	}), nil
}

// memberOfRoot reads a member of execution or of a task without making an
// object of all of them. It returns nil if n is anything else.
func (c *compiler) memberOfRoot(n *ast.MemberNode, name string) (node, error) {
	if c.rootName(n.Node) == "execution" {
		c.refs.varies = true
		return c.at(n, func(r *run) (any, error) { return r.env.Execution.Member(name), nil }), nil
	}
	task, ok := n.Node.(*ast.MemberNode)
	if !ok || c.rootName(task.Node) != "tasks" {
		return nil, nil
	}
	id, ok := task.Property.(*ast.StringNode)
	if !ok {
		return nil, nil
	}
	if !listed(taskMembers, name) {
		return nil, c.fail(n, "a task has no “%s”, only %s", name, commas(taskMembers))
	}
	c.refs.addTask(id.Value)
	return c.at(n, func(r *run) (any, error) { return r.env.Tasks[id.Value].Member(name), nil }), nil
}

func listed(words, word string) bool { return slices.Contains(strings.Fields(words), word) }

func commas(words string) string { return strings.ReplaceAll(words, " ", ", ") }

// pick reads the member or element k of v; one that is missing is null.
func pick(v, k any) (any, error) {
	if v == nil || k == nil {
		return nil, nil
	}
	switch v := v.(type) {
	case map[string]any:
		name, ok := k.(string)
		if !ok {
			return nil, problemf("the name of an object's member must be text, but it is %s", kind(k))
		}
		return v[name], nil
	case []any:
		n, ok := toNumber(k)
		if !ok {
			return nil, problemf("the index of a list must be a number, but it is %s", kind(k))
		}
		i, ok := n.whole()
		if !ok {
			return nil, problem("the index of a list must be a whole number")
		}
		if i < 0 {
			i += len(v)
		}
		if i < 0 || i >= len(v) {
			return nil, nil
		}
		return v[i], nil
	default:
		return nil, nil
	}
}

func (c *compiler) slice(n *ast.SliceNode) (node, error) {
	base, err := c.compile(n.Node)
	if err != nil {
		return nil, err
	}
	bounds := [2]node{constant(nil), constant(nil)}
	for i, bound := range []ast.Node{n.From, n.To} {
		if bound == nil {
			continue
		}
		if bounds[i], err = c.compile(bound); err != nil {
			return nil, err
		}
	}
	label := c.label(n.Node, "this")
	return c.at(n, func(r *run) (any, error) {
		v, err := base(r)
		if err != nil {
			return nil, err
		}
		from, err := bounds[0](r)
		if err != nil {
			return nil, err
		}
		to, err := bounds[1](r)
		if err != nil {
			return nil, err
		}
		switch v := v.(type) {
		case nil:
			return nil, nil
		case []any:
			start, end, err := sliceBounds(from, to, len(v))
			if err != nil {
				return nil, err
			}
			return v[start:end:end], nil
		case string:
			return r.sliceText(v, from, to)
		default:
			return nil, problemf("[from:to] needs a list or text, but %s is %s", label, kind(v))
		}
	}), nil
}

func (r *run) sliceText(text string, from, to any) (any, error) {
	if err := r.scan(len(text)); err != nil {
		return nil, err
	}
	start, end, err := sliceBounds(from, to, utf8.RuneCountInString(text))
	if err != nil {
		return nil, err
	}
	first, last, count := len(text), len(text), 0
	for i := range text {
		if count == start {
			first = i
		}
		if count == end {
			last = i
			break
		}
		count++
	}
	return text[min(first, last):last], nil
}

// sliceBounds resolves [from:to]: negative bounds count from the end, bounds
// beyond an end stop there.
func sliceBounds(from, to any, length int) (start, end int, err error) {
	end = length
	for i, bound := range []any{from, to} {
		if bound == nil {
			continue
		}
		n, ok := toNumber(bound)
		if !ok {
			return 0, 0, problemf("a bound of [from:to] must be a number, but it is %s", kind(bound))
		}
		b, ok := n.whole()
		if !ok {
			return 0, 0, problem("a bound of [from:to] must be a whole number")
		}
		if b < 0 {
			b += length
		}
		b = max(0, min(b, length))
		if i == 0 {
			start = b
		} else {
			end = b
		}
	}
	return start, max(start, end), nil
}
