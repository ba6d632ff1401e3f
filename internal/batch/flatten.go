package batch

import (
	"encoding/json"
	"slices"

	"tranche/internal/exactjson"
)

// columnSet is the columns of a table in the order in which they were met.
type columnSet struct {
	names []string
	index map[string]int
	path  []byte // reused by flatten
}

func newColumnSet(names ...string) *columnSet {
	s := &columnSet{index: make(map[string]int, len(names)), path: make([]byte, 0, 256)}
	for _, name := range names {
		s.add(name)
	}
	return s
}

// add appends a column unless it is there or columnsMax are.
func (s *columnSet) add(name string) {
	if _, ok := s.index[name]; ok || len(s.names) == columnsMax {
		return
	}
	s.index[name] = len(s.names)
	s.names = append(s.names, name)
}

// addLeaves appends a column for every leaf of a value that has none; those of
// one value in alphabetic order.
func (s *columnSet) addLeaves(value map[string]any) {
	var unseen []string
	flatten(s.path, value, func(path []byte, _ any) {
		if _, ok := s.index[string(path)]; !ok {
			unseen = append(unseen, string(path))
		}
	})
	slices.Sort(unseen)
	for _, name := range unseen {
		s.add(name)
	}
}

// fill writes the leaves of a value into the cells of their columns; cells of
// absent leaves are emptied.
func (s *columnSet) fill(cells []string, value map[string]any) error {
	clear(cells[:len(s.names)])
	var failed error
	flatten(s.path, value, func(path []byte, leaf any) {
		i, ok := s.index[string(path)]
		if !ok {
			return
		}
		var err error
		if cells[i], err = cellOf(leaf); err != nil {
			failed = err
		}
	})
	return failed
}

// flatten calls yield for every leaf of an object with its dotted path, in no
// order. Arrays and empty objects are leaves.
func flatten(path []byte, object map[string]any, yield func(path []byte, leaf any)) {
	for name, value := range object {
		at := path
		if len(at) > 0 {
			at = append(at, '.')
		}
		at = append(at, name...)
		if inner, ok := value.(map[string]any); ok && len(inner) > 0 {
			flatten(at, inner, yield)
			continue
		}
		yield(at, value)
	}
}

// cellOf writes a leaf as the text of a cell: numbers with their exact text,
// arrays and empty objects as JSON, null as empty; texts escaped.
func cellOf(leaf any) (string, error) {
	switch leaf := leaf.(type) {
	case nil:
		return "", nil
	case string:
		return escape(leaf), nil
	case json.Number:
		return leaf.String(), nil
	default:
		text, err := exactjson.Encode(leaf)
		return string(text), err
	}
}
