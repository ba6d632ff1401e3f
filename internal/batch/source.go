package batch

import (
	"errors"
	"fmt"
	"io"

	"tranche/internal/fault"
)

// item is one item of a batch as its source gives it.
type item struct {
	fileName string // of the source; empty for items of the request
	row      int    // of the source's table, header = 1; 0 for items of the request
	input    map[string]any
	faults   []fault.Detail // what does not fit the input schema's types
}

// itemReader gives the items of a source in their order.
type itemReader interface {
	// next returns the next item or io.EOF.
	next() (item, error)
	// skip passes over the next item, cheaper than next, or returns io.EOF.
	skip() error
	// columns are the dotted names of inputs that the source declares.
	columns() []string
}

// listReader gives the items of the request.
type listReader struct {
	items []any
	at    int
}

func (r *listReader) next() (item, error) {
	if r.at == len(r.items) {
		return item{}, io.EOF
	}
	input, ok := r.items[r.at].(map[string]any)
	if !ok {
		return item{}, fmt.Errorf("item %d of the request is not an object", r.at)
	}
	r.at++
	return item{input: input}, nil
}

func (r *listReader) skip() error {
	if r.at == len(r.items) {
		return io.EOF
	}
	r.at++
	return nil
}

func (r *listReader) columns() []string { return nil }

// tableReader gives the rows of a file.
type tableReader struct {
	table  *table
	layout *layout
}

// newTableReader reads the header of a file. Faults of the file are *FileError.
func newTableReader(fileName string, source io.Reader, schema map[string]any) (*tableReader, error) {
	t, err := openTable(fileName, source)
	if err != nil {
		return nil, err
	}
	l, err := newLayout(fileName, t.header, schema)
	if err != nil {
		return nil, err
	}
	return &tableReader{table: t, layout: l}, nil
}

func (r *tableReader) next() (item, error) {
	cells, err := r.table.next()
	if err != nil {
		return item{}, err
	}
	input, faults := r.layout.item(cells)
	return item{fileName: r.table.name, row: r.table.row, input: input, faults: faults}, nil
}

func (r *tableReader) skip() error {
	_, err := r.table.next()
	return err
}

func (r *tableReader) columns() []string {
	names := make([]string, len(r.layout.columns))
	for i, c := range r.layout.columns {
		names[i] = c.name
	}
	return names
}

// skip passes over n items of a source and returns how many there were.
func skip(r itemReader, n int) (int, error) {
	for i := range n {
		if err := r.skip(); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return i, err
		}
	}
	return n, nil
}
