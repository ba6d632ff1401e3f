package expression

import (
	"strconv"

	"github.com/expr-lang/expr/ast"
)

// loopVars are the variables of one predicate: # the element, #index its index, #acc the
// accumulated value of reduce.
type loopVars struct {
	item, index, acc int
	reduces          bool
}

func (c *compiler) pointer(n *ast.PointerNode) (node, error) {
	if len(c.loops) == 0 {
		return nil, c.fail(n, "# is the current element of a list; use it only inside map, filter and similar functions")
	}
	vars := c.loops[len(c.loops)-1]
	switch {
	case n.Name == "":
		return func(r *run) (any, error) { return r.vars[vars.item], nil }, nil
	case n.Name == "index":
		return func(r *run) (any, error) {
			i, _ := r.vars[vars.index].(int)
			return newNumber(i), nil
		}, nil
	case n.Name == "acc" && vars.reduces:
		return func(r *run) (any, error) { return r.vars[vars.acc], nil }, nil
	default:
		return nil, c.fail(n, "#%s is not known", n.Name)
	}
}

// loop applies the predicate of a function to every element of a list.
type loop struct {
	name  string
	items node
	label string
	body  node
	vars  loopVars
	last  node // the argument after the predicate; nil without one
}

// loopOf compiles the arguments of a function that takes a list and a predicate.
func (c *compiler) loopOf(name string, args []ast.Node, predicate *ast.PredicateNode) (*loop, error) {
	l := &loop{name: name, label: c.label(args[0], "its list")}
	var err error
	if l.items, err = c.compile(args[0]); err != nil {
		return nil, err
	}
	l.vars = loopVars{item: c.variable(), index: c.variable(), acc: c.variable(), reduces: name == "reduce"}
	c.loops = append(c.loops, l.vars)
	l.body, err = c.loopBody(name, predicate)
	c.loops = c.loops[:len(c.loops)-1]
	if err != nil {
		return nil, err
	}
	if len(args) > 2 {
		l.last, err = c.compile(args[2])
	}
	return l, err
}

func (c *compiler) loopBody(name string, predicate *ast.PredicateNode) (node, error) {
	switch name {
	case "map", "sum", "reduce", "sortBy", "groupBy":
		return c.compile(predicate.Node)
	}
	condition, err := c.condition(predicate.Node)
	if err != nil {
		return nil, err
	}
	return func(r *run) (any, error) { return boxedBool(condition(r)) }, nil
}

func (l *loop) list(r *run) ([]any, error) {
	v, err := l.items(r)
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok {
		return nil, problemf("%s needs a list, but %s is %s", l.name, l.label, kind(v))
	}
	return list, nil
}

// visit receives each element and the predicate's value for it. It reports whether the
// loop is done.
type visit func(i int, item, made any) (done bool, err error)

func (l *loop) each(r *run, see visit) error {
	list, err := l.list(r)
	if err != nil {
		return err
	}
	return l.over(r, list, 0, see)
}

func (l *loop) over(r *run, list []any, from int, see visit) error {
	for i := from; i < len(list); i++ {
		if err := r.step(1); err != nil {
			return err
		}
		r.vars[l.vars.item], r.vars[l.vars.index] = list[i], i
		made, err := l.body(r)
		if err != nil {
			return err
		}
		if done, err := see(i, list[i], made); done || err != nil {
			return err
		}
	}
	return nil
}

// looped compiles a call of a function with a predicate.
func (c *compiler) looped(n ast.Node, name string, args []ast.Node, predicate *ast.PredicateNode) (node, error) {
	l, err := c.loopOf(name, args, predicate)
	if err != nil {
		return nil, err
	}
	var eval node
	switch name {
	case "all":
		eval = l.search(false, false)
	case "none":
		eval = l.search(true, false)
	case "any":
		eval = l.search(true, true)
	case "one", "count":
		eval = l.count
	case "find", "findIndex":
		eval = l.first
	case "findLast", "findLastIndex":
		eval = l.final
	case "sum":
		eval = l.sum
	case "filter":
		eval = l.filter
	case "map":
		eval = l.transform
	case "reduce":
		eval = l.reduce
	case "sortBy":
		eval = l.sortBy
	case "groupBy":
		eval = l.groupBy
	default:
		return nil, c.fail(n, "unknown function “%s”", name)
	}
	c.builds = true
	return c.at(n, eval), nil
}

// search stops at the first element with the wanted condition and returns found, otherwise
// the opposite.
func (l *loop) search(wanted, found bool) node {
	return func(r *run) (any, error) {
		result := !found
		err := l.each(r, func(_ int, _, met any) (bool, error) {
			if met == wanted {
				result = found
			}
			return met == wanted, nil
		})
		return boxedBool(result, err)
	}
}

func (l *loop) count(r *run) (any, error) {
	n := 0
	err := l.each(r, func(_ int, _, met any) (bool, error) {
		if met == true {
			n++
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	if l.name == "one" {
		return n == 1, nil
	}
	return newNumber(n), nil
}

func (l *loop) first(r *run) (any, error) { return l.pick(r, true) }
func (l *loop) final(r *run) (any, error) { return l.pick(r, false) }

// pick finds the first or last element that meets the condition, or its place;
// without one the element is null and the place -1.
func (l *loop) pick(r *run, stop bool) (any, error) {
	var found any
	at := -1
	err := l.each(r, func(i int, item, met any) (bool, error) {
		if met == true {
			found, at = item, i
		}
		return stop && met == true, nil
	})
	if err != nil {
		return nil, err
	}
	if l.name == "findIndex" || l.name == "findLastIndex" {
		return newNumber(at), nil
	}
	return found, nil
}

func (l *loop) sum(r *run) (any, error) {
	total := newNumber(0)
	err := l.each(r, func(_ int, _, made any) (bool, error) {
		n, ok := toNumber(made)
		if !ok {
			return false, problemf("sum needs numbers, but the value of one element is %s", kind(made))
		}
		var err error
		total, err = add(new(number), total, n)
		return false, err
	})
	return boxed(total, err)
}

func (l *loop) filter(r *run) (any, error) {
	kept := []any{}
	err := l.each(r, func(_ int, item, met any) (bool, error) {
		if met == true {
			kept = append(kept, item)
			return false, r.grow(itemBytes)
		}
		return false, nil
	})
	return kept, err
}

func (l *loop) transform(r *run) (any, error) {
	made := []any{}
	err := l.each(r, func(_ int, _, v any) (bool, error) {
		made = append(made, seal(v))
		return false, r.grow(itemBytes)
	})
	return made, err
}

func (l *loop) reduce(r *run) (any, error) {
	list, err := l.list(r)
	if err != nil {
		return nil, err
	}
	var acc any
	from := 0
	switch {
	case l.last != nil:
		if acc, err = l.last(r); err != nil {
			return nil, err
		}
	case len(list) > 0:
		acc, from = list[0], 1
	}
	r.vars[l.vars.acc] = acc
	err = l.over(r, list, from, func(_ int, _, made any) (bool, error) {
		acc = made
		r.vars[l.vars.acc] = made
		return false, nil
	})
	return acc, err
}

func (l *loop) sortBy(r *run) (any, error) {
	list, err := l.list(r)
	if err != nil {
		return nil, err
	}
	if err := r.list(2 * len(list)); err != nil {
		return nil, err
	}
	keys := make([]any, 0, len(list))
	err = l.over(r, list, 0, func(_ int, _, key any) (bool, error) {
		keys = append(keys, key)
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	var order any
	if l.last != nil {
		if order, err = l.last(r); err != nil {
			return nil, err
		}
	}
	return r.sort("sortBy", list, keys, order)
}

// groupBy makes an object of lists. The names are the keys as text.
func (l *loop) groupBy(r *run) (any, error) {
	groups := map[string]any{}
	err := l.each(r, func(_ int, item, key any) (bool, error) {
		var name string
		switch key := key.(type) {
		case string:
			name = key
		case bool:
			name = strconv.FormatBool(key)
		default:
			n, ok := toNumber(key)
			if !ok {
				return false, problemf("groupBy needs text, numbers or true and false as keys, but the key of one element is %s", kind(key))
			}
			name = (&number{dec: n.dec}).String()
		}
		group, ok := groups[name].([]any)
		if !ok {
			if err := r.grow(memberBytes + len(name)); err != nil {
				return false, err
			}
		}
		groups[name] = append(group, item)
		return false, r.grow(itemBytes)
	})
	return groups, err
}
