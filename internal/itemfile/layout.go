package itemfile

import (
	"fmt"
	"slices"
	"strings"

	"tranche/internal/exactjson"
	"tranche/internal/fault"
)

// layout maps the columns of a table to properties of the items.
type layout struct {
	columns []column
	named   []bool // by position in the row: the column has a name
	nested  []nesting
}

// ignoredPrefix begins the names of columns that are not read (contract 6.7).
const ignoredPrefix = "_"

// column is a column that is read. Columns without a name and ignored columns are not
// read.
type column struct {
	position int
	name     string   // applicant.income, as joinName writes it
	path     []string // its segments
	property
}

// field returns the name of the property in faults, as the input schema reports it.
func (c *column) field() string { return strings.Join(c.path, ".") }

// nesting is a pair of columns. The property of the inner one is within that of the outer
// one, such as address.zip within address. A row can fill only one of them. A table that
// joins several files can have both.
type nesting struct{ outer, inner int }

// newLayout reads a header. SplitName splits the names of columns into properties
// (contract 6.2). Errors are *Error.
func newLayout(fileName string, header []string, schema map[string]any) (*layout, error) {
	l := &layout{named: make([]bool, len(header))}
	seen := map[string]bool{}
	for i, name := range header {
		l.named[i] = name != ""
		if name == "" || strings.HasPrefix(name, ignoredPrefix) {
			continue
		}
		name, blankIsMeant := fromHeader(name)
		path, reason := SplitName(name), ""
		name = joinName(path)
		switch {
		case seen[name]:
			reason = "the name must be unique; it occurs twice"
		case !blankIsMeant && slices.ContainsFunc(path, isBlank):
			reason = "the name must not have an empty part between dots"
		case len(path) >= exactjson.DepthMax:
			reason = fmt.Sprintf("the name must have fewer than %d parts", exactjson.DepthMax)
		}
		if reason != "" {
			return nil, &Error{File: fileName, Row: 1, Column: header[i], Reason: reason}
		}
		seen[name] = true
		l.columns = append(l.columns, column{position: i, name: name, path: path, property: propertyAt(schema, path)})
	}
	for inner, c := range l.columns {
		for n := 1; n < len(c.path); n++ {
			if parent := joinName(c.path[:n]); seen[parent] {
				outer := slices.IndexFunc(l.columns, func(c column) bool { return c.name == parent })
				l.nested = append(l.nested, nesting{outer: outer, inner: inner})
			}
		}
	}
	if len(l.columns) == 0 {
		return nil, &Error{File: fileName, Row: 1, Reason: "no column is read; name a column without a leading _"}
	}
	return l, nil
}

// isIn reports whether a row has a value for the column.
func (c *column) isIn(cells []string) bool { return c.position < len(cells) && cells[c.position] != "" }

// item converts the cells of a row into the input of an item. An empty cell is an absent
// property. A cell that does not fit the type of its property stays a text and causes a
// fault.
func (l *layout) item(cells []string) (map[string]any, []fault.Detail) {
	input := make(map[string]any, len(l.columns))
	var faults []fault.Detail
	if len(cells) < len(l.named) {
		faults = append(faults, fault.Detail{Message: fmt.Sprintf("the row has %d cells, but the header has %d", len(cells), len(l.named))})
	}
	for i, cell := range cells {
		if cell != "" && (i >= len(l.named) || !l.named[i]) {
			faults = append(faults, fault.Detail{Message: fmt.Sprintf("cell %d has no column in the header", i+1)})
			break
		}
	}
	for _, n := range l.nested {
		if outer, inner := &l.columns[n.outer], &l.columns[n.inner]; outer.isIn(cells) && inner.isIn(cells) {
			faults = append(faults, fault.Detail{Field: inner.field(), Message: "is within " + outer.field() + ", which also has a value in this row"})
		}
	}
	for i := range l.columns {
		c := &l.columns[i]
		if !c.isIn(cells) {
			continue
		}
		value, reason := convert(cells[c.position], c.types)
		if reason != "" {
			faults = append(faults, fault.Detail{Field: c.field(), Message: reason})
		}
		place(input, c.path, value)
	}
	return input, faults
}

// place sets the member at a path and creates the objects around it.
func place(object map[string]any, path []string, value any) {
	for _, segment := range path[:len(path)-1] {
		inner, ok := object[segment].(map[string]any)
		if !ok {
			inner = map[string]any{}
			object[segment] = inner
		}
		object = inner
	}
	object[path[len(path)-1]] = value
}
