package batch

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

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
		i, ok := s.index[string(path)]
		if !ok {
			i, ok = s.plainIndex(path)
		}
		if ok {
			cells[i], err = cellOf(leaf)
		}
		return err
	})
}

// plainIndex finds a column whose name has no backslashes before the dots of names: of
// batches that a program read or ran which wrote none. Where some leaves have no
// column because there are too many, it could be that of another leaf.
func (s *columnSet) plainIndex(path []byte) (int, bool) {
	if len(s.names) == itemfile.ColumnsMax || bytes.IndexByte(path, '\\') < 0 {
		return 0, false
	}
	i, ok := s.index[strings.Join(itemfile.SplitName(string(path)), ".")]
	return i, ok
}

// flatten calls yield for every leaf of an object with the name of its column after
// that of the object, in no order. Arrays and empty objects are leaves.
func flatten(path []byte, object map[string]any, yield func(path []byte, leaf any)) {
	for name, value := range object {
		at := itemfile.AppendName(path, name)
		if inner, ok := value.(map[string]any); ok && len(inner) > 0 {
			flatten(append(at, '.'), inner, yield)
			continue
		}
		yield(at, value)
	}
}

// batchesKnownMax bounds for how many batches output columns are remembered;
// what is forgotten is sent to the database once more.
const batchesKnownMax = 64

// knownColumns remembers which output columns of the running batches are
// recorded, so that a statement names only new ones: usually none.
type knownColumns struct {
	mu      sync.Mutex
	batches map[uuid.UUID]*columnSet
}

// unseen returns the output columns of items that are not known to be recorded.
func (k *knownColumns) unseen(batchID uuid.UUID, items []*ended) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := newColumnSet()
	if recorded := k.batches[batchID]; recorded != nil {
		known = newColumnSet(recorded.names...)
	}
	n := len(known.names)
	for _, it := range items {
		known.addLeaves(it.Outcome.Output)
	}
	return slices.Clone(known.names[n:])
}

// note remembers columns that are recorded now.
func (k *knownColumns) note(batchID uuid.UUID, columns []string) {
	if len(columns) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.batches == nil || len(k.batches) == batchesKnownMax && k.batches[batchID] == nil {
		k.batches = map[uuid.UUID]*columnSet{}
	}
	if k.batches[batchID] == nil {
		k.batches[batchID] = newColumnSet()
	}
	for _, name := range columns {
		k.batches[batchID].add(name)
	}
}
