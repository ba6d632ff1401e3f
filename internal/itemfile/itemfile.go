// Package itemfile reads the items of a batch from files: delimited tables of any encoding
// (table.go, delimiter.go, encoding.go), spreadsheets (sheet.go), and arrays and lines of
// JSON (objects.go). The name of a file tells its format (format.go). The header of a
// table maps columns to properties (layout.go). The input schema tells the types of the
// properties (convert.go).
//
// The package streams files and limits their size. Its errors are written for the authors
// of the files. An error of one row fails that row only; other errors refuse the file.
//
// The package is pure. It must not know databases, HTTP, workflows or the use of an item.
package itemfile

import (
	"errors"
	"io"
	"slices"

	"tranche/internal/fault"
)

// Item is one item of a batch as its source contains it.
type Item struct {
	FileName string // of the source; empty if the item is from no file
	Row      int    // row of the table (header = 1), line or position in the array, from 1; 0 if the item is from no file
	Input    map[string]any
	Faults   []fault.Detail // values that do not fit the types of the input schema
	IsBroken bool           // the item could not be read; Faults has the reason

	// A row of a table has these until Read converts them into Input and Faults.
	layout *layout
	cells  []string
}

// Read converts the cells of a row into Input and Faults. It does nothing for other
// items. A row that waits for Read uses little memory.
func (it *Item) Read() {
	if it.layout != nil {
		it.Input, it.Faults = it.layout.item(it.cells)
		it.layout, it.cells = nil, nil
	}
}

// Reader reads the items of a source in order. The caller must close a Reader that is an
// io.Closer.
type Reader interface {
	// Next returns the next item or io.EOF.
	Next() (Item, error)
	// Size returns the length in bytes of the text of the last item.
	Size() int
	// Skip skips the next item, or returns io.EOF. It is cheaper than Next.
	Skip() error
	// Columns returns the dotted names of the columns in the header of the source.
	Columns() []string
	// FileName returns the name of the file. It is empty if there is no file.
	FileName() string
}

// rowReader reads the rows of a delimited file or a sheet.
type rowReader interface {
	// names returns the names of the columns in the first row.
	names() []string
	// next returns the cells of the next row that is not empty, or io.EOF. The cells are
	// valid until the next call. A *rowError comes with the cells before the fault.
	next() ([]string, error)
	// line returns the number of the last row; the first row is 1.
	line() int
}

// tableReader reads the rows of a table as items.
type tableReader struct {
	fileName string
	rows     rowReader
	layout   *layout
	// adjust converts the text of a cell of the last row for its property. Only
	// spreadsheets have it.
	adjust func(cell string, c *column) string
	read   int // bytes of the last row
}

// Open returns a Reader of a file of items. The extension of the file name tells the
// format. The JSON Schema tells the types of the properties. Open and the Reader return
// *Error for a fault of the file; other errors come from the source. A spreadsheet is
// read in place if the source is an io.Seeker. Otherwise it is held in memory.
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
		cells = cells[:len(cells)-1] // any number of empty cells may end a row
	}
	it := Item{FileName: r.fileName, Row: r.rows.line(), layout: r.layout, cells: cells}
	switch {
	case isBroken:
		it.Read()
		it.Faults, it.IsBroken = []fault.Detail{{Field: broken.column, Message: broken.reason}}, true
	case len(cells) > len(r.layout.named):
		it.Read() // now, so that the surplus cells are not kept in memory
	default:
		it.cells = slices.Clone(cells) // the next row overwrites them
	}
	return it, nil
}

// adjustAll adjusts the cells of the last row in columns that are read.
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

// Close closes the reader of the rows.
func (r *tableReader) Close() error {
	if closer, ok := r.rows.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}
