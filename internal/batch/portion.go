package batch

import (
	"errors"
	"fmt"
	"io"

	"tranche/internal/itemfile"
)

// Limits of a portion, of which several are in memory at a time.
const (
	portionItemsMax = chunkItemsMax
	portionBytesMax = 1 << 20 // of the texts that its items are read from; the last may go beyond
	portionsAhead   = 3       // that are read while one is put into chunks
)

// portion is items of one source, one after the other: what is checked at a time.
type portion struct {
	columns []string // that the source declares; with its first portion
	items   []itemfile.Item
}

// portioner reads items in portions.
type portioner struct {
	next  int32 // index of the next item
	yield func(portion) error
}

// readAll yields the items of the sources from index next on. Where there is
// none at all, it is the fault of the first file.
func (p *portioner) readAll(sources []openSource) error {
	before, firstFile := int(p.next), ""
	for _, open := range sources {
		r, err := open()
		if err != nil {
			return err
		}
		passed, err := p.readFrom(r, before)
		if closer, ok := r.(io.Closer); ok {
			err = errors.Join(err, closer.Close())
		}
		if err != nil {
			return err
		}
		before -= passed
		if firstFile == "" {
			firstFile = r.FileName()
		}
	}
	if p.next == 0 && firstFile != "" {
		return &itemfile.Error{File: firstFile, Reason: "there is no item in it"}
	}
	return nil
}

// readFrom yields the items of a source but the first ones, which it passes over
// and counts.
func (p *portioner) readFrom(r itemfile.Reader, before int) (passed int, err error) {
	if passed, err = skip(r, before); err != nil {
		return passed, err
	}
	columns := r.Columns()
	for {
		items, err := p.read(r)
		isEnd := errors.Is(err, io.EOF)
		if err != nil && !isEnd {
			return passed, err
		}
		if err := p.yield(portion{columns: columns, items: items}); err != nil || isEnd {
			return passed, err
		}
		columns = nil
	}
}

// read returns the next items of a source, the last ones with io.EOF.
func (p *portioner) read(r itemfile.Reader) (items []itemfile.Item, err error) {
	for size := 0; len(items) < portionItemsMax && size < portionBytesMax; size += r.Size() {
		it, err := r.Next()
		if err != nil {
			return items, err
		}
		if p.next == itemsMax {
			return nil, &itemfile.Error{File: it.FileName, Row: it.Row, Reason: fmt.Sprintf("a batch has at most %d items", itemsMax)}
		}
		items = append(items, it)
		p.next++
	}
	return items, nil
}

// skip passes over n items of a source and returns how many there were.
func skip(r itemfile.Reader, n int) (int, error) {
	for i := range n {
		if err := r.Skip(); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return i, err
		}
	}
	return n, nil
}
