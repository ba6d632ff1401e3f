package ingest

import (
	"errors"
	"fmt"
	"io"

	"tranche/internal/batch"
	"tranche/internal/itemfile"
)

// Limits of a page. Several pages are in memory at a time.
const (
	pageItemsMax = batch.ChunkItemsMax
	pageBytesMax = 1 << 20 // of the source texts of its items; the last item may exceed it
)

// page is consecutive items of one source, which are checked together.
type page struct {
	columns []string // that the source declares; on its first page
	items   []itemfile.Item
}

// pageReader reads sources in pages.
type pageReader struct {
	next int32 // index of the next item
}

// readAll yields the items of the sources from index next on. If the sources have no item,
// the error names the first file.
func (r *pageReader) readAll(sources []openSource, yield func(page) error) error {
	before, firstFile := int(r.next), ""
	for _, open := range sources {
		source, err := open()
		if err != nil {
			return err
		}
		skipped, err := r.readSource(source, before, yield)
		if closer, ok := source.(io.Closer); ok {
			err = errors.Join(err, closer.Close())
		}
		if err != nil {
			return err
		}
		before -= skipped
		if firstFile == "" {
			firstFile = source.FileName()
		}
	}
	if r.next == 0 && firstFile != "" {
		return &itemfile.Error{File: firstFile, Reason: "there is no item in it"}
	}
	return nil
}

// readSource yields the items of a source after the first ones, which it skips and counts.
func (r *pageReader) readSource(source itemfile.Reader, before int, yield func(page) error) (skipped int, err error) {
	if skipped, err = skip(source, before); err != nil {
		return skipped, err
	}
	columns := source.Columns()
	for {
		items, err := r.read(source)
		isEnd := errors.Is(err, io.EOF)
		if err != nil && !isEnd {
			return skipped, err
		}
		if err := yield(page{columns: columns, items: items}); err != nil || isEnd {
			return skipped, err
		}
		columns = nil
	}
}

// read returns the items of the next page. The last ones come with io.EOF.
func (r *pageReader) read(source itemfile.Reader) (items []itemfile.Item, err error) {
	for size := 0; len(items) < pageItemsMax && size < pageBytesMax; size += source.Size() {
		it, err := source.Next()
		if err != nil {
			return items, err
		}
		if r.next == batch.ItemsMax {
			return nil, &itemfile.Error{File: it.FileName, Row: it.Row, Reason: fmt.Sprintf("a batch has at most %d items", batch.ItemsMax)}
		}
		items = append(items, it)
		r.next++
	}
	return items, nil
}

// skip skips n items of a source and returns how many there were.
func skip(source itemfile.Reader, n int) (int, error) {
	for i := range n {
		if err := source.Skip(); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return i, err
		}
	}
	return n, nil
}
