package expression

import (
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"
)

// countMax bounds counts and repetitions that are given as arguments.
const countMax = 100_000_000

func listFunction(name string) function {
	switch name {
	case "count":
		return function{1, 1, countTrue}
	case "len":
		return function{1, 1, length}
	case "first":
		return function{1, 1, func(c *call) (any, error) { return c.element(0) }}
	case "last":
		return function{1, 1, func(c *call) (any, error) { return c.element(-1) }}
	case "take":
		return function{2, 2, take}
	case "reverse":
		return function{1, 1, reverse}
	case "concat":
		return function{1, anyNumber, concat}
	case "flatten":
		return function{1, 1, flatten}
	case "uniq":
		return function{1, 1, uniq}
	case "sort":
		return function{1, 2, sorted}
	case "includes":
		return function{2, 2, includes}
	default:
		return function{}
	}
}

// countTrue counts the elements that are true.
func countTrue(c *call) (any, error) {
	list, err := c.list(0)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, v := range list {
		if v == true {
			n++
		}
	}
	return newNumber(n), c.run.step(len(list))
}

// length counts the elements of a list, the members of an object or the
// characters of a text.
func length(c *call) (any, error) {
	switch v := c.args[0].(type) {
	case []any:
		return newNumber(len(v)), nil
	case map[string]any:
		return newNumber(len(v)), nil
	case string:
		return newNumber(utf8.RuneCountInString(v)), c.run.scan(len(v))
	default:
		return nil, c.wrong(0, "a list, an object or text")
	}
}

func (c *call) element(place int) (any, error) {
	list, err := c.list(0)
	if err != nil {
		return nil, err
	}
	return pick(list, newNumber(place))
}

func take(c *call) (any, error) {
	list, err := c.list(0)
	if err != nil {
		return nil, err
	}
	n, err := c.whole(1, 0, countMax)
	if err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, problem("take needs a count that is not negative")
	}
	n = min(n, len(list))
	return list[:n:n], nil
}

// copied returns a copy of a list that may be changed.
func (c *call) copied(i int) ([]any, error) {
	list, err := c.list(i)
	if err != nil {
		return nil, err
	}
	return append([]any{}, list...), c.run.list(len(list))
}

func reverse(c *call) (any, error) {
	list, err := c.copied(0)
	slices.Reverse(list)
	return list, err
}

func concat(c *call) (any, error) {
	joined := []any{}
	for i := range c.args {
		list, err := c.list(i)
		if err != nil {
			return nil, err
		}
		if err := c.run.list(len(list)); err != nil {
			return nil, err
		}
		joined = append(joined, list...)
	}
	return joined, nil
}

// flatten puts the elements of lists within a list, at any depth, in their place.
func flatten(c *call) (any, error) {
	list, err := c.list(0)
	if err != nil {
		return nil, err
	}
	return c.run.flatten([]any{}, list)
}

func (r *run) flatten(into, list []any) ([]any, error) {
	for _, v := range list {
		if err := r.list(1); err != nil {
			return nil, err
		}
		inner, ok := v.([]any)
		if !ok {
			into = append(into, v)
			continue
		}
		var err error
		if into, err = r.flatten(into, inner); err != nil {
			return nil, err
		}
	}
	return into, nil
}

// uniq keeps the first of equal elements.
func uniq(c *call) (any, error) {
	list, err := c.list(0)
	if err != nil {
		return nil, err
	}
	if err := c.run.list(len(list)); err != nil {
		return nil, err
	}
	seen := make(map[string]bool, len(list))
	kept := []any{}
	for _, v := range list {
		key, err := c.run.canonical(v)
		if err != nil {
			return nil, err
		}
		if err := c.run.grow(memberBytes + len(key)); err != nil {
			return nil, err
		}
		if !seen[key] {
			seen[key] = true
			kept = append(kept, v)
		}
	}
	return kept, nil
}

func sorted(c *call) (any, error) {
	list, err := c.list(0)
	if err != nil {
		return nil, err
	}
	if err := c.run.list(2 * len(list)); err != nil {
		return nil, err
	}
	var order any
	if len(c.args) > 1 {
		order = c.args[1]
	}
	return c.run.sort(c.name, list, list, order)
}

// sort orders items by their keys, equal ones as they were. order is null,
// "asc" or "desc". Steps for the copies are accounted for by the caller.
func (r *run) sort(name string, items, keys []any, order any) ([]any, error) {
	if order != nil && order != "asc" && order != "desc" {
		return nil, problemf(`the order of %s is "asc" or "desc"`, name)
	}
	if err := r.step(len(items) * bits.Len(uint(len(items))) / 8); err != nil {
		return nil, err
	}
	places := make([]int, len(items))
	for i := range places {
		places[i] = i
	}
	var failed error
	slices.SortStableFunc(places, func(i, j int) int {
		if failed != nil {
			return 0
		}
		result, err := r.compare(keys[i], keys[j])
		if err != nil {
			failed = err
		}
		if order == "desc" {
			return -result
		}
		return result
	})
	if failed == errNotOrdered { //nolint:errorlint // a constant that is never wrapped
		return nil, problemf("%s needs numbers only, texts only or dates only", name)
	}
	if failed != nil {
		return nil, failed
	}
	result := make([]any, len(items))
	for i, place := range places {
		result[i] = items[place]
	}
	return result, nil
}

// includes looks for a part of a text or an element of a list; null includes
// nothing.
func includes(c *call) (any, error) {
	switch within := c.args[0].(type) {
	case nil:
		return false, nil
	case string:
		part, err := c.text(1)
		if err != nil {
			return nil, err
		}
		return strings.Contains(within, part), c.run.scan(len(within))
	case []any:
		i, err := c.run.find(within, c.args[1])
		return i >= 0, err
	default:
		return nil, c.wrong(0, "text or a list")
	}
}
