package batch

import (
	"errors"
	"io"
	"slices"

	"tranche/internal/fault"
)

// item is one item of a batch as its source gives it.
type item struct {
	fileName string // of the source; empty for items of the request
	row      int    // of the source's table, header = 1, its line or its place in the array, from 1; 0 for items of the request
	input    map[string]any
	faults   []fault.Detail // what does not fit the input schema's types
	isBroken bool           // the input is not what the source means: faults say why

	// Most rows of a table have these in place of input and faults, until read or a
	// rowWriter makes the input.
	layout *layout
	cells  []string
}

// read has the layout of a row make its input.
func (it *item) read() {
	if it.layout != nil {
		it.input, it.faults = it.layout.item(it.cells)
		it.layout, it.cells = nil, nil
	}
}

// itemReader gives the items of a source in their order.
type itemReader interface {
	// next returns the next item or io.EOF.
	next() (item, error)
	// size is how long the text of the item was that next returned, in bytes.
	size() int
	// skip passes over the next item, cheaper than next, or returns io.EOF.
	skip() error
	// columns are the dotted names of inputs that the source declares.
	columns() []string
	// from is the name of the file; empty for the items of the request.
	from() string
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

// openItems begins to read a file of items. Faults of the file are *FileError.
func openItems(fileName string, source io.Reader, schema map[string]any) (itemReader, error) {
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
		return newTableReader(f, rows, schema, rows.adjust)
	default:
		rows, err := openTable(f)
		if err != nil {
			return nil, err
		}
		return newTableReader(f, rows, schema, nil)
	}
}

func newTableReader(f *file, rows rowReader, schema map[string]any, adjust func(string, *column) string) (*tableReader, error) {
	l, err := newLayout(f.name, rows.names(), schema)
	if err != nil {
		return nil, err
	}
	return &tableReader{fileName: f.name, rows: rows, layout: l, adjust: adjust}, nil
}

func (r *tableReader) next() (item, error) {
	cells, err := r.rows.next()
	broken, isBroken := errors.AsType[*rowError](err)
	if err != nil && !isBroken {
		return item{}, err
	}
	r.read = 0
	for _, cell := range cells {
		r.read += len(cell)
	}
	r.adjustAll(cells)
	for len(cells) > len(r.layout.named) && cells[len(cells)-1] == "" {
		cells = cells[:len(cells)-1] // a row may end in any number of them
	}
	it := item{fileName: r.fileName, row: r.rows.line(), layout: r.layout, cells: cells}
	switch {
	case isBroken:
		it.read()
		it.faults, it.isBroken = []fault.Detail{{Field: broken.column, Message: broken.reason}}, true
	case len(cells) > len(r.layout.named):
		it.read() // what it has too much is not kept
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

func (r *tableReader) skip() error {
	_, err := r.rows.next()
	if _, ok := errors.AsType[*rowError](err); ok {
		return nil
	}
	return err
}

func (r *tableReader) size() int { return r.read }

func (r *tableReader) columns() []string {
	names := make([]string, len(r.layout.columns))
	for i, c := range r.layout.columns {
		names[i] = c.name
	}
	return names
}

func (r *tableReader) from() string { return r.fileName }

// Close lets go of what the rows hold.
func (r *tableReader) Close() error {
	if closer, ok := r.rows.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}
