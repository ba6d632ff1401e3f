// Package itemfile reads the items of a batch from the files that people have:
// delimited tables in whatever encoding (table.go, delimiter.go, encoding.go),
// spreadsheets (sheet.go, workbook.go), arrays and lines of JSON (objects.go).
// format.go tells them apart by their names. The header of a table says which
// property each of its columns becomes (layout.go), the input schema of which type
// (convert.go); row.go is the short way for rows that are as they should be. Files
// are read as streams, within limits, and what is wrong with them is said in words
// for those who made them: of one row, which then fails alone, or of the whole file.
//
// The package is pure. It must not know databases, HTTP, workflows nor what
// becomes of an item.
package itemfile

import (
	"errors"
	"io"
	"slices"

	"tranche/internal/fault"
)

// Item is one item of a batch as its source gives it.
type Item struct {
	FileName string // of the source; empty for an item of no file
	Row      int    // of the source's table, header = 1, its line or its place in the array, from 1; 0 for an item of no file
	Input    map[string]any
	Faults   []fault.Detail // what does not fit the input schema's types
	IsBroken bool           // the input is not what the source means: faults say why

	// Most rows of a table have these in place of input and faults, until Read or a
	// RowWriter makes the input.
	layout *layout
	cells  []string
}

// Read has the layout of a row make its Input and Faults. Those of any other item
// are there already.
func (it *Item) Read() {
	if it.layout != nil {
		it.Input, it.Faults = it.layout.item(it.cells)
		it.layout, it.cells = nil, nil
	}
}

// Reader gives the items of a source in their order. One that is an io.Closer is to
// be closed.
type Reader interface {
	// Next returns the next item or io.EOF.
	Next() (Item, error)
	// Size is how long the text of the item was that Next returned, in bytes.
	Size() int
	// Skip passes over the next item, cheaper than Next, or returns io.EOF.
	Skip() error
	// Columns are the dotted names of inputs that the source declares.
	Columns() []string
	// FileName is the name of the file; empty where there is none.
	FileName() string
}

// rowReader gives the rows of a table: of a delimited file or of a sheet.
type rowReader interface {
	// names are those of the columns, as the first row gives them.
	names() []string
	// next returns the cells of the next row that is not empty, valid until the
	// next call, or io.EOF. *rowError comes with the cells before the fault.
	next() ([]string, error)
	// line is the number of the row that next returned, the first being 1.
	line() int
}

// tableReader gives the rows of a table as items.
type tableReader struct {
	fileName string
	rows     rowReader
	layout   *layout
	// adjust, unless nil, writes a cell of the last row of a spreadsheet as the text it stands for.
	adjust func(cell string, c *column) string
	read   int // bytes of the last row
}

// Open begins to read a file of items, whose format its name tells. The schema, one
// of JSON Schema, gives the types of the properties that a table's cells become.
// Faults of the file are *Error, here and of the Reader; other errors are the
// source's own. A source that is an io.Seeker is read from any place where the
// format needs it, else such a file is held in memory.
func Open(fileName string, source io.Reader, schema map[string]any) (Reader, error) {
	f, err := openFile(fileName, source)
	if err != nil {
		return nil, err
	}
	switch f.format.kind {
	case kindArray:
		return openArray(f)
	case kindLines:
		return openLines(f), nil
	case kindSheet:
		rows, err := openSheet(f)
		if err != nil {
			return nil, err
		}
		r, err := newTableReader(f, rows, schema, rows.adjust)
		if err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		return r, nil
	default:
		rows, err := openTable(f)
		if err != nil {
			return nil, err
		}
		return newTableReader(f, rows, schema, nil)
	}
}

func newTableReader(f *file, rows rowReader, schema map[string]any, adjust func(string, *column) string) (Reader, error) {
	l, err := newLayout(f.name, rows.names(), schema)
	if err != nil {
		return nil, err
	}
	return &tableReader{fileName: f.name, rows: rows, layout: l, adjust: adjust}, nil
}

func (r *tableReader) Next() (Item, error) {
	cells, err := r.rows.next()
	broken, isBroken := errors.AsType[*rowError](err)
	if err != nil && !isBroken {
		return Item{}, err
	}
	r.read = 0
	for _, cell := range cells {
		r.read += len(cell)
	}
	r.adjustAll(cells)
	for len(cells) > len(r.layout.named) && cells[len(cells)-1] == "" {
		cells = cells[:len(cells)-1] // a row may end in any number of them
	}
	it := Item{FileName: r.fileName, Row: r.rows.line(), layout: r.layout, cells: cells}
	switch {
	case isBroken:
		it.Read()
		it.Faults, it.IsBroken = []fault.Detail{{Field: broken.column, Message: broken.reason}}, true
	case len(cells) > len(r.layout.named):
		it.Read() // what it has too much is not kept
	default:
		it.cells = slices.Clone(cells) // the next row replaces them
	}
	return it, nil
}

// adjustAll adjusts the cells of the last row that are read.
func (r *tableReader) adjustAll(cells []string) {
	if r.adjust == nil {
		return
	}
	for i := range r.layout.columns {
		if c := &r.layout.columns[i]; c.isIn(cells) {
			cells[c.position] = r.adjust(cells[c.position], c)
		}
	}
}

func (r *tableReader) Skip() error {
	_, err := r.rows.next()
	if _, ok := errors.AsType[*rowError](err); ok {
		return nil
	}
	return err
}

func (r *tableReader) Size() int { return r.read }

func (r *tableReader) Columns() []string {
	names := make([]string, len(r.layout.columns))
	for i, c := range r.layout.columns {
		names[i] = c.name
	}
	return names
}

func (r *tableReader) FileName() string { return r.fileName }

// Close lets go of what the rows hold.
func (r *tableReader) Close() error {
	if closer, ok := r.rows.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}
