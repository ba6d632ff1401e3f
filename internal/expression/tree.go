package expression

import (
	"maps"
	"strconv"
)

// Tree is a JSON value with templates as its texts, at any depth. Names of members are
// constant. It is safe for concurrent use.
type Tree struct {
	refs
	value any // of a tree without any {{ … }}
	fill  filler
}

// filler makes a part of a tree; parts without any {{ … }} have none.
type filler func(*run) (any, error)

// Fault is one leaf of a tree that does not compile.
type Fault struct {
	Path string // as a caller writes it: items[0].name; empty for the value itself
	Err  *Error
}

// CompileTree compiles every text in v and returns all faults, in order of
// their paths. v must not be changed afterwards.
func CompileTree(v any, scope Scope) (*Tree, []Fault) {
	c := &treeCompiler{scope: scope}
	fill := c.compile(v, "")
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	return &Tree{value: v, fill: fill, refs: c.refs}, nil
}

// Eval evaluates the template. If it is exactly one {{ … }}, the value keeps its type;
// otherwise the result is text. The error is an *Error.
func (t *Tree) Eval(env *Env) (any, error) {
	if t.fill == nil {
		return t.value, nil
	}
	r := newRun(env)
	defer r.done()
	v, err := t.fill(r)
	if err != nil {
		return nil, err
	}
	if _, err := measure(v, 0, memoryMax); err != nil {
		return nil, place(err, Position{})
	}
	return v, nil
}

// Literal returns the value of a tree without any {{ … }}.
func (t *Tree) Literal() (any, bool) { return t.value, t.fill == nil }

// FieldPaths returns the whole paths of the $.name that it reads, as far as
// their names are written out: a.b for $.a.b[0]. They are sorted.
func (t *Tree) FieldPaths() []string { return t.fieldPaths.sorted() }

type treeCompiler struct {
	scope  Scope
	refs   refs
	faults []Fault
}

// compile returns nil for a part without any {{ … }}.
func (c *treeCompiler) compile(v any, path string) filler {
	switch v := v.(type) {
	case string:
		return c.leaf(v, path)
	case []any:
		return c.list(v, path)
	case map[string]any:
		return c.object(v, path)
	default:
		return nil
	}
}

func (c *treeCompiler) leaf(text, path string) filler {
	t, err := CompileTemplate(text, c.scope)
	if err != nil {
		c.faults = append(c.faults, Fault{Path: path, Err: place(err, Position{})})
		return nil
	}
	if _, ok := t.Literal(); ok {
		return nil
	}
	c.refs.merge(t.refs)
	return func(r *run) (any, error) {
		v, err := t.evalIn(r)
		if err != nil {
			placed := *place(err, Position{})
			placed.Path = path
			return nil, &placed
		}
		return v, nil
	}
}

func (c *treeCompiler) list(items []any, path string) filler {
	fillers := make([]filler, len(items))
	filled := false
	for i, item := range items {
		fillers[i] = c.compile(item, path+"["+strconv.Itoa(i)+"]")
		filled = filled || fillers[i] != nil
	}
	if !filled {
		return nil
	}
	return func(r *run) (any, error) {
		made := make([]any, len(items))
		for i, fill := range fillers {
			if fill == nil {
				made[i] = items[i]
				continue
			}
			var err error
			if made[i], err = fill(r); err != nil {
				return nil, err
			}
		}
		return made, nil
	}
}

func (c *treeCompiler) object(members map[string]any, path string) filler {
	type member struct {
		name string
		fill filler
	}
	var filled []member
	for _, name := range sortedKeys(members) {
		inner := name
		if path != "" {
			inner = path + "." + name
		}
		if fill := c.compile(members[name], inner); fill != nil {
			filled = append(filled, member{name, fill})
		}
	}
	if len(filled) == 0 {
		return nil
	}
	return func(r *run) (any, error) {
		made := maps.Clone(members)
		for _, m := range filled {
			v, err := m.fill(r)
			if err != nil {
				return nil, err
			}
			made[m.name] = v
		}
		return made, nil
	}
}
