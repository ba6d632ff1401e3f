package batch

import (
	"context"
	"errors"
	"maps"
	"slices"

	"tranche/internal/fault"
)

// add puts a page, whose items are recorded now, into the draft: into its report, with the
// pages that waited for it, or among those that wait for items before them.
func (d *draft) add(ctx context.Context, p *draftPage) {
	if d == nil {
		return
	}
	<-d.opened
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !d.isOpen() || p.first < d.next: // what is missing before another page may have been read with it
		return
	case p.page == nil && p.size() > pageBytesMax:
		d.close()
		return
	case d.next > 0 && len(d.columns.of(d.batchID)) > len(d.report.outputs):
		d.giveUp(ctx, errMoreColumns)
		return
	}
	p.bytes = p.size()
	d.ahead[p.first] = p
	d.drafts.bytesAhead.Add(p.bytes)
	if d.mayWait() {
		return
	}
	leave, err := d.recording.take(ctx, d.tenantID, d.batchID)
	if err != nil {
		return // what waits is written with the next
	}
	defer leave()
	if d.write(ctx, d.mayWait) != nil {
		d.drop() // PostProcess reads it
	}
}

// mayWait reports whether there is nothing to write yet, because the next items may be
// running. Where too much waits, they are not running here, and are read instead.
func (d *draft) mayWait() bool {
	return d.ahead[d.next] == nil && len(d.ahead) <= draftPagesAhead && d.drafts.bytesAhead.Load() <= draftBytesAhead
}

// errMoreColumns says that an item has outputs for which results.csv has no column.
var errMoreColumns = errors.New("an item has further outputs than those before")

// finish writes the pages that wait, as far as little is missing before them. The caller
// has taken the draft.
func (d *draft) finish(ctx context.Context) error {
	defer d.drop()
	return d.write(ctx, func() bool { return d.firstAhead()-d.next > pageItemsMax })
}

// firstAhead is the first item of the pages that wait, of which there are some.
func (d *draft) firstAhead() int32 { return slices.Min(slices.Collect(maps.Keys(d.ahead))) }

// drop forgets the pages that wait. The caller holds the lock, or has taken the draft.
func (d *draft) drop() {
	for first := range d.ahead {
		d.pop(first)
	}
}

// pop returns the page that waits and begins with an item, which waits no more; nil if
// there is none.
func (d *draft) pop(first int32) *draftPage {
	p := d.ahead[first]
	if p != nil {
		delete(d.ahead, first)
		d.drafts.bytesAhead.Add(-p.bytes)
	}
	return p
}

// write puts pages that wait into the report, and what is missing before them, until the
// rest may wait. The caller holds the lock, or has taken the draft.
func (d *draft) write(ctx context.Context, mayWait func() bool) error {
	for len(d.ahead) > 0 && !mayWait() {
		p := d.pop(d.next)
		if p == nil {
			p = &draftPage{first: d.next, end: d.firstAhead()}
		}
		for d.next < p.end {
			isWritten, err := d.writeNext(ctx, p)
			if err != nil {
				return err
			}
			if !isWritten { // an item of it has not ended: it runs elsewhere
				d.drop()
				return nil
			}
		}
	}
	return nil
}

// writeNext writes a page or, of one that is to be read, as much as is read at a time;
// false if there is no text of it (format).
func (d *draft) writeNext(ctx context.Context, p *draftPage) (isWritten bool, err error) {
	if p.page == nil && !p.isWhole() {
		d.begin(ctx, p.items) // the parts do not have the items
		p = &draftPage{first: d.next, end: min(p.end, d.next+d.report.pageItems())}
	}
	if p.page == nil {
		if err := d.format(ctx, p); err != nil || p.page == nil {
			return false, err
		}
	}
	if err := fault.Safely(func() error { return d.report.write(p.page) }); err != nil {
		d.giveUp(ctx, err) // it may be half written
		return false, err
	}
	d.next = p.end
	return true, nil
}

// begin writes the heads of the files, if nobody has: with columns for the outputs that
// are known and those of the given items. Should another item have a further one, the
// draft is of no use.
func (d *draft) begin(ctx context.Context, items []*ended) {
	d.beginning.Do(func() {
		err := fault.Safely(func() error {
			columns := newColumnSet(slices.Concat(d.outputs, d.columns.of(d.batchID))...)
			for _, it := range items {
				if it != nil {
					columns.addLeaves(it.Outcome.Output)
				}
			}
			return d.report.begin(d.inputs, columns.names)
		})
		if err != nil {
			d.giveUp(ctx, err)
		}
	})
}
