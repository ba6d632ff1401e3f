package task

import (
	"context"
	"slices"
	"strings"

	"tranche/internal/expression"
	"tranche/internal/workflow"
)

// transformType computes an object field by field. A field may use others as
// $.name; they are evaluated in the order that this asks for.
type transformType struct{}

// transform is a compiled transform: its leaves, each after those it uses.
type transform struct{ leaves []leaf }

// leaf is one value to compute. An object with members is not a leaf; its members are.
type leaf struct {
	path []string
	tree *expression.Tree
}

func (l leaf) name() string { return strings.Join(l.path, ".") }

func (transformType) Compile(c *workflow.ConfigReader) workflow.Program {
	c.Require("fields")
	fields, isObject := c.Value("fields").(map[string]any)
	if !isObject {
		if c.Has("fields") {
			c.Fault("fields", "must be an object")
		}
		return nil
	}
	b := transformBuilder{c: c.With(expression.Scope{Fields: true})}
	b.read(nil, fields)
	return &transform{leaves: b.sort()}
}

// transformBuilder collects the leaves of a transform and orders them.
type transformBuilder struct {
	c      *workflow.ConfigReader
	leaves []leaf
	sorted []leaf
	state  []visit // by leaf
}

type visit uint8

const (
	visitNone visit = iota
	visitOpen       // being sorted: meeting it again is a cycle
	visitDone
)

func (b *transformBuilder) read(path []string, fields map[string]any) {
	for _, name := range sortedNames(fields) {
		inner := append(slices.Clone(path), name)
		if object, ok := fields[name].(map[string]any); ok && len(object) > 0 {
			b.read(inner, object)
			continue
		}
		l := leaf{path: inner}
		l.tree = b.c.TreeAt("fields."+l.name(), fields[name])
		b.leaves = append(b.leaves, l)
	}
}

// sort orders each leaf after the leaves that it uses, and reports cycles.
func (b *transformBuilder) sort() []leaf {
	b.state = make([]visit, len(b.leaves))
	for i := range b.leaves {
		b.place(i)
	}
	return b.sorted
}

// place appends a leaf after those it uses; false if that leads back to it.
func (b *transformBuilder) place(i int) bool {
	switch b.state[i] {
	case visitDone:
		return true
	case visitOpen:
		return false
	case visitNone:
	}
	b.state[i] = visitOpen
	for _, used := range b.uses(i) {
		if !b.place(used) {
			b.c.Fault("fields."+b.leaves[i].name(), "depends on itself through $.%s", b.leaves[used].name())
		}
	}
	b.state[i] = visitDone
	b.sorted = append(b.sorted, b.leaves[i])
	return true
}

// uses returns the leaves that a leaf refers to.
func (b *transformBuilder) uses(i int) []int {
	tree := b.leaves[i].tree
	if tree == nil {
		return nil
	}
	var used []int
	for _, ref := range tree.FieldPaths() {
		known := false
		for j := range b.leaves {
			if concerns(ref, b.leaves[j].name()) {
				used = append(used, j)
				known = true
			}
		}
		if !known {
			b.c.Fault("fields."+b.leaves[i].name(), "refers to $.%s, which is not a field of this transform", ref)
		}
	}
	return used
}

// concerns reports whether a reference reads a leaf: the leaf itself, a member
// of its value, or an object that it is part of.
func concerns(ref, leaf string) bool {
	return ref == leaf || strings.HasPrefix(ref, leaf+".") || strings.HasPrefix(leaf, ref+".")
}

// Effect is false: a transform only computes.
func (*transform) Effect() bool { return false }

// Run evaluates the fields. The output is the object of all of them.
func (t *transform) Run(ctx context.Context, call *workflow.Call) (workflow.Result, error) {
	output := make(map[string]any, len(t.leaves))
	env := *call.Env
	env.Fields = output
	for _, l := range t.leaves {
		if err := ctx.Err(); err != nil {
			return workflow.Result{}, err
		}
		v, err := l.tree.Eval(&env)
		if err != nil {
			return workflow.Result{}, failureAt(workflow.CodeExpression, "fields."+l.name(), err)
		}
		set(output, l.path, v)
	}
	return workflow.Result{Output: output}, nil
}

// set puts a value at a path of objects, making those that are missing. No
// path may lead through another's value.
func set(object map[string]any, path []string, v any) {
	last := len(path) - 1
	for _, segment := range path[:last] {
		inner, ok := object[segment].(map[string]any)
		if !ok {
			inner = map[string]any{}
			object[segment] = inner
		}
		object = inner
	}
	object[path[last]] = v
}
