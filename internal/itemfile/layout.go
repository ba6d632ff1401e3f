package itemfile

import (
	"fmt"
	"slices"
	"strings"

	"tranche/internal/exactjson"
	"tranche/internal/fault"
)

// layout says which property of an item each column of a table becomes.
type layout struct {
	columns []column
	named   []bool // by position in the row: the column has a name
	nested  []nesting
}

// ignoredPrefix begins the names of columns that are not read (decisions 6.7).
const ignoredPrefix = "_"

// column is a column that is read: those without a name and those that are to be
// ignored are not.
type column struct {
	position int
	name     string   // applicant.income, as joinName writes it
	path     []string // its segments
	property
}

// field names the property in faults, as those of the input schema do.
func (c *column) field() string { return strings.Join(c.path, ".") }

// nesting is of two columns of which one is a property within the other's, as
// address.zip within address. A row fills one of them: where the files that a
// table was made of differ, an object can be a value here and have parts there.
type nesting struct{ outer, inner int }

// newLayout reads a header: names are properties of the input, with dots for
// nesting (decisions 6.2), as SplitName reads them. Errors are *Error.
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
			reason = "the column occurs twice"
		case !blankIsMeant && slices.ContainsFunc(path, isBlank):
			reason = "a name has no empty part between dots"
		case len(path) >= exactjson.DepthMax:
			reason = fmt.Sprintf("a name has less than %d parts", exactjson.DepthMax)
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
		return nil, &Error{File: fileName, Row: 1, Reason: "no column has a name that is read"}
	}
	return l, nil
}

// isIn reports whether a row has a value for the column.
func (c *column) isIn(cells []string) bool { return c.position < len(cells) && cells[c.position] != "" }

// item makes the input of an item of the cells of a row. An empty cell is an
// absent property. A cell that does not fit its property's type stays a text
// and gives a fault.
func (l *layout) item(cells []string) (map[string]any, []fault.Detail) {
	input := make(map[string]any, len(l.columns))
	var faults []fault.Detail
	if len(cells) < len(l.named) {
		faults = append(faults, fault.Detail{Message: fmt.Sprintf("the row has %d cells where the header has %d", len(cells), len(l.named))})
	}
	for i, cell := range cells {
		if cell != "" && (i >= len(l.named) || !l.named[i]) {
			faults = append(faults, fault.Detail{Message: fmt.Sprintf("cell %d has no column in the header", i+1)})
			break
		}
	}
	for _, n := range l.nested {
		if outer, inner := &l.columns[n.outer], &l.columns[n.inner]; outer.isIn(cells) && inner.isIn(cells) {
			faults = append(faults, fault.Detail{Field: inner.field(), Message: "is within " + outer.field() + ", which has a value of its own in this row"})
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

// place sets the member at a path and makes the objects around it.
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
