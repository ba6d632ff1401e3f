package batch

import (
	"context"
	"slices"

	"tranche/internal/engine"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// draftPage is what came of the items first to end-1 of a batch, as far as this process
// knows: from the run of a chunk, or nothing yet of items that are to be read.
type draftPage struct {
	first, end int32
	// rows and items are of the items in memory; nil of an item of which it is only known
	// that it is recorded. Both are nil once the text is made.
	rows  *chunkRows
	items []*ended
	page  *reportPage // the text of the items; nil before it is made
	bytes int64       // the size of the page while it waits for items before it
}

// newDraftPage returns the page of the first items of a chunk, or of all.
func newDraftPage(rows *chunkRows, items []*ended) *draftPage {
	return &draftPage{first: rows.itemIndexes[0], end: rows.itemIndexes[len(items)-1] + 1, rows: rows, items: items}
}

// isWhole reports whether what came of all items of the page is in memory. Items that
// do not match the schema are in no chunk: they were recorded when they were read, and
// leave gaps.
func (p *draftPage) isWhole() bool {
	return len(p.items) == int(p.end-p.first) && !slices.Contains(p.items, nil)
}

// size is about how many bytes the page takes, before its text is made and afterwards.
func (p *draftPage) size() (n int64) {
	for i, it := range p.items {
		if n += int64(len(p.rows.inputs[i])); it != nil {
			n += int64(it.size())
		}
	}
	if p.page != nil {
		for i := range p.page.texts {
			n += int64(p.page.texts[i].Len())
		}
	}
	return n
}

// chunkRows is what the database has of the items of a chunk, in its order.
type chunkRows struct {
	itemIndexes, rowNumbers []int32  // a number is 0 where there is none
	fileNames, inputs       []string // a name is empty where there is none
}

// result is an item as the output package tells it.
func (c *chunkRows) result(i int, it *ended) (*itemResult, error) {
	r := &itemResult{
		itemIndex: c.itemIndexes[i], executionID: it.ID.String(), status: string(it.Outcome.Status),
		input: c.inputs[i], result: string(it.ResultText),
	}
	if n := c.rowNumbers[i]; n != 0 {
		r.rowNumber = &n
	}
	if name := c.fileNames[i]; name != "" {
		r.fileName = &name
	}
	if code := int32(it.Outcome.StatusCode); code != 0 {
		r.statusCode = &code
	}
	return r, r.readResult()
}

// prepare makes the text of a page whose items are about to be recorded, if the package
// is there already; otherwise that is done when the page is written.
func (d *draft) prepare(ctx context.Context, p *draftPage) {
	if d == nil || !p.isWhole() || p.size() > pageBytesMax {
		return
	}
	select {
	case <-d.opened:
		_ = fault.Safely(func() error { return d.format(ctx, p) }) // it will be tried again
	default:
	}
}

// format makes the text of a page from its items in memory or, where some are not there,
// from what is recorded. None is made if an item has not ended or the draft is not open.
func (d *draft) format(ctx context.Context, p *draftPage) error {
	if !d.isOpen() {
		return nil
	}
	d.begin(ctx, p.items)
	if !d.isOpen() {
		return nil
	}
	if !p.isWhole() {
		return d.read(ctx, p)
	}
	page, _ := d.report.pages.Get().(*reportPage)
	for i, it := range p.items {
		if i%lookOutEach == 0 {
			lookOut()
		}
		d.Executions.Callers.LetGoFirst(ctx)
		r, err := p.rows.result(i, it)
		if err == nil {
			err = page.write(r)
		}
		if err != nil {
			return err
		}
	}
	if err := page.flush(); err != nil {
		return err
	}
	p.page, p.rows, p.items = page, nil, nil
	return nil
}

// read makes the text of a page from what the database has; none if an item of it is not
// recorded as ended.
func (d *draft) read(ctx context.Context, p *draftPage) error {
	rows, err := d.q.BatchItemsListResults(ctx, d.Pool, queries.BatchItemsListResultsParams{
		TenantID: d.tenantID, BatchID: d.batchID, FirstItem: p.first, EndItem: p.end,
	})
	if err != nil {
		return postgres.Translate(err)
	}
	runs := func(row queries.BatchItemsListResultsRow) bool {
		return row.Status == string(engine.StatusPending) || row.Status == string(engine.StatusRunning)
	}
	if len(rows) == int(p.end-p.first) && !slices.ContainsFunc(rows, runs) {
		p.page, err = d.report.format(rows)
	}
	return err
}
