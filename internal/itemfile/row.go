package itemfile

import (
	"slices"

	"tranche/internal/exactjson"
)

// Nearly all rows are regular: they have as many cells as the header, and each that
// is not empty fits its property's type. Their inputs have the same members but for
// empty cells, so the order in which these are written is found once, and the objects
// are used again for the next row.

// member is a member of the inputs of regular rows: the value of a column, or an
// object of further members.
type member struct {
	name    string
	text    string // the name as it is written, with its colon
	column  *column
	members []member // of an object, in the order of their names
	object  int      // of an object: its place in RowWriter.inner
}

// findMembers finds what the inputs of regular rows are made of. There are none where
// a column has no name or is within another, of which only item tells the faults, or
// can be an object: no input of a regular row has other leaves than the columns.
func (l *layout) findMembers() {
	if len(l.nested) > 0 || slices.Contains(l.named, false) {
		return
	}
	columns := make([]*column, len(l.columns))
	for i := range l.columns {
		columns[i] = &l.columns[i]
		if columns[i].types.has(typeObject) {
			return
		}
	}
	slices.SortFunc(columns, func(a, b *column) int { return slices.Compare(a.path, b.path) })
	if members, err := l.membersOf(columns, 0); err == nil {
		l.members = members
	}
}

// membersOf returns the members that columns are or are within, whose paths are
// sorted and differ only from depth on.
func (l *layout) membersOf(columns []*column, depth int) ([]member, error) {
	var members []member
	for len(columns) > 0 {
		first, n := columns[0], 1
		for n < len(columns) && columns[n].path[depth] == first.path[depth] {
			n++
		}
		m := member{name: first.path[depth]}
		text, err := exactjson.Encode(m.name)
		if err != nil {
			return nil, err
		}
		m.text = string(text) + ":"
		if len(first.path) == depth+1 {
			m.column = first
		} else {
			m.object = l.objects
			l.objects++
			if m.members, err = l.membersOf(columns[:n], depth+1); err != nil {
				return nil, err
			}
		}
		members, columns = append(members, m), columns[n:]
	}
	return members, nil
}

// RowWriter makes the inputs of regular rows, one after the other: as values and as
// JSON at once. An input is valid until the next call of Write.
type RowWriter struct {
	// Text is the JSON of the last regular row's input. Its memory is used again for
	// the next one, and between two calls by whoever calls Write.
	Text []byte

	layout *layout
	cells  []string
	input  map[string]any
	inner  []map[string]any // the objects within
}

// Write reports whether the item is a regular row; then it has its input, and Text
// is that of the input. Any other item is left as it is.
func (w *RowWriter) Write(it *Item) bool {
	if it.layout == nil || it.layout.members == nil || len(it.cells) != len(it.layout.named) {
		return false
	}
	if w.layout != it.layout {
		w.layout, w.input, w.inner = it.layout, map[string]any{}, make([]map[string]any, it.layout.objects)
		for i := range w.inner {
			w.inner[i] = map[string]any{}
		}
	}
	w.cells, w.Text = it.cells, w.Text[:0]
	isRegular := w.object(w.input, w.layout.members)
	if isRegular {
		it.Input = w.input
	}
	return isRegular
}

// object writes an object of the row's cells, and reports whether they are regular.
func (w *RowWriter) object(object map[string]any, members []member) bool {
	clear(object)
	w.Text = append(w.Text, '{')
	for i := range members {
		m, before := &members[i], len(w.Text)
		if len(object) > 0 {
			w.Text = append(w.Text, ',')
		}
		w.Text = append(w.Text, m.text...)
		isThere, isRegular := w.member(object, m)
		if !isRegular {
			return false
		}
		if !isThere {
			w.Text = w.Text[:before]
		}
	}
	w.Text = append(w.Text, '}')
	return true
}

// member writes the value of a member, unless its cells are empty.
func (w *RowWriter) member(object map[string]any, m *member) (isThere, isRegular bool) {
	if m.column == nil {
		inner := w.inner[m.object]
		isRegular = w.object(inner, m.members)
		if len(inner) > 0 {
			object[m.name] = inner
		}
		return len(inner) > 0, isRegular
	}
	cell := w.cells[m.column.position]
	if cell == "" {
		return false, true
	}
	value, reason := convert(cell, m.column.types)
	if reason != "" {
		return true, false
	}
	object[m.name] = value
	text, err := exactjson.Append(w.Text, value)
	w.Text = text
	return true, err == nil
}
