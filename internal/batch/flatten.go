package batch

import (
	"slices"

	"tranche/internal/itemfile"
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

// add appends a column unless it is there or itemfile.ColumnsMax are.
func (s *columnSet) add(name string) {
	if _, ok := s.index[name]; ok || len(s.names) == itemfile.ColumnsMax {
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

// fill writes the leaves of an object, which is the text of JSON, into the cells
// of their columns; cells of absent leaves are emptied.
func (s *columnSet) fill(cells []string, object string) error {
	clear(cells[:len(s.names)])
	walk := jsonWalk{text: object}
	return walk.leaves(s.path, func(path []byte, leaf string) (err error) {
		if i, ok := s.index[string(path)]; ok {
			cells[i], err = cellOf(leaf)
		}
		return err
	})
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
