package itemfile

import (
	"bytes"
	"slices"
	"strings"
)

// Columns is a set of columns in the order in which they were added. It has at most
// ColumnsMax columns. A leaf of a JSON object belongs to the column that AppendName makes
// of its path.
type Columns struct {
	names []string
	index map[string]int
	path  []byte // reused by AddLeaves
}

// NewColumns returns a set of the named columns.
func NewColumns(names ...string) *Columns {
	c := &Columns{index: make(map[string]int, len(names)), path: make([]byte, 0, 256)}
	for _, name := range names {
		c.Add(name)
	}
	return c
}

// Names returns the columns in their order. The caller must not change them.
func (c *Columns) Names() []string { return c.names }

// Add appends a column, unless it is in the set or the set is full.
func (c *Columns) Add(name string) {
	if _, ok := c.index[name]; ok || len(c.names) == ColumnsMax {
		return
	}
	c.index[name] = len(c.names)
	c.names = append(c.names, name)
}

// AddLeaves appends a column for every leaf of an object that has none. The new columns of
// one object are in alphabetical order.
func (c *Columns) AddLeaves(object map[string]any) {
	var unseen []string
	flatten(c.path, object, func(path []byte) {
		if _, ok := c.index[string(path)]; !ok {
			unseen = append(unseen, string(path))
		}
	})
	slices.Sort(unseen)
	for _, name := range unseen {
		c.Add(name)
	}
}

// Index returns the position of a column. Batches that earlier versions read or ran have
// names without backslashes before dots, so Index looks for such a name too, unless the set
// is full: then the name may belong to another leaf.
func (c *Columns) Index(name []byte) (int, bool) {
	i, ok := c.index[string(name)]
	if ok || len(c.names) == ColumnsMax || bytes.IndexByte(name, '\\') < 0 {
		return i, ok
	}
	i, ok = c.index[strings.Join(SplitName(string(name)), ".")]
	return i, ok
}

// flatten calls yield with the column of every leaf of an object, in no order. Arrays and
// empty objects are leaves.
func flatten(path []byte, object map[string]any, yield func(path []byte)) {
	for name, value := range object {
		at := AppendName(path, name)
		if inner, ok := value.(map[string]any); ok && len(inner) > 0 {
			flatten(append(at, '.'), inner, yield)
			continue
		}
		yield(at)
	}
}
