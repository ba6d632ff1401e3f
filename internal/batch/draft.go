package batch

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/semaphore"

	"tranche/internal/engine"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// The output package of a batch is begun while its items run: what came of a chunk
// is put into it from memory once it is recorded, in the order of the items.
// PostProcess takes this draft over and writes the rest. Nothing depends on one:
// where there is none, as after a crash, or it is not what it should be, what was
// recorded is read again.

const (
	draftsMax = 16 // at a time in a process
	// draftIdleMax is after how long a draft into which nothing is put makes room for
	// another.
	draftIdleMax = time.Minute
	// Pages wait for the items before them. If more would, these are not run here, but
	// failed before they ran or are another process': then they are read.
	draftPagesAhead = 32      // of a draft
	draftBytesAhead = 8 << 20 // of all drafts of the process
	// draftTakeMax is how long PostProcess waits for what is on its way to a draft.
	draftTakeMax = time.Second
)

// drafts are those that this process writes.
type drafts struct {
	mu         sync.Mutex
	batches    map[uuid.UUID]*draft
	bytesAhead atomic.Int64 // of pages that wait
}

// draft is the output package of a batch whose items run. A nil one takes nothing.
type draft struct {
	*Service
	tenantID, batchID uuid.UUID
	usedAt            time.Time // guarded by the lock of drafts
	// members are those who may put something into it. Who takes it over waits for
	// them and lets in no more.
	members *semaphore.Weighted

	opened          chan struct{} // closed when there is a report, or isClosed
	report          *report
	attempt         int32    // of the batch when it was opened
	inputs, outputs []string // likewise its columns
	beginning       sync.Once
	isClosed        atomic.Bool // nothing more is put into it
	isBroken        atomic.Bool // nor is the report what it should be

	mu   sync.Mutex
	next int32 // the items before are in the report
	// ahead is what waits for items before it, by the first of its own.
	ahead map[int32]*draftPage
}

// draftPage is what came of items that follow each other.
type draftPage struct {
	first, end int32
	// rows and items are of those that are in memory; an item is nil of which it is
	// known only that it is recorded.
	rows  *chunkRows
	items []*ended
	page  *reportPage // nil before it is made
	bytes int64       // its size, while it waits
}

// newDraftPage makes the page of the first items of a chunk, or of all.
func newDraftPage(rows *chunkRows, items []*ended) *draftPage {
	return &draftPage{first: rows.itemIndexes[0], end: rows.itemIndexes[len(items)-1] + 1, rows: rows, items: items}
}

// isWhole reports whether all items of the page are in memory: those between them
// were recorded when they were read.
func (p *draftPage) isWhole() bool {
	return len(p.items) == int(p.end-p.first) && !slices.Contains(p.items, nil)
}

// size is how many bytes the page takes, about, before it is made and afterwards.
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

// joinDraft returns the draft of a batch, to which something may come until it is
// left; nil if there is none.
func (s *Service) joinDraft(ctx context.Context, tenantID, batchID uuid.UUID) *draft {
	s.drafts.mu.Lock()
	defer s.drafts.mu.Unlock()
	now, batches := s.Clock(), s.drafts.batches
	d := batches[batchID]
	if d == nil {
		for id, other := range batches { // of batches that were paused, or that another process has ended
			if now.Sub(other.usedAt) > draftIdleMax && other.members.TryAcquire(math.MaxInt64) {
				other.drop()
				delete(batches, id)
			}
		}
		if len(batches) >= draftsMax {
			return nil
		}
		d = &draft{
			Service: s, tenantID: tenantID, batchID: batchID,
			members: semaphore.NewWeighted(math.MaxInt64), opened: make(chan struct{}), ahead: map[int32]*draftPage{},
		}
		batches[batchID] = d
		go d.open(ctx)
	}
	d.usedAt = now
	if !d.members.TryAcquire(1) { // never: who takes it over has removed it before
		return nil
	}
	return d
}

// leave is when nothing more comes from whoever joined.
func (d *draft) leave() {
	if d != nil {
		<-d.opened // it does not outlive who opened it
		if d.isClosed.Load() {
			d.mu.Lock()
			d.drop()
			d.mu.Unlock()
		}
		d.members.Release(1)
	}
}

// open makes the package, beside the items that run first.
func (d *draft) open(ctx context.Context) {
	defer close(d.opened)
	ctx = context.WithoutCancel(ctx) // it is written by other jobs than this one
	err := fault.Safely(func() error {
		return postgres.InTx(ctx, d.Pool, func(tx pgx.Tx) error {
			r, err := d.newReport(ctx, tx, d.tenantID)
			if err != nil {
				return err
			}
			row, err := d.q.BatchDraftPackageBegin(ctx, tx, queries.BatchDraftPackageBeginParams{
				TenantID: d.tenantID, ID: d.batchID, PackageID: r.packageID,
			})
			d.report, d.attempt, d.inputs, d.outputs = r, row.Attempt, row.InputColumns, row.OutputColumns
			return err
		})
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows): // it is another's to write, or there is nothing to run any more
		d.isBroken.Store(true)
		d.isClosed.Store(true)
	case err != nil:
		d.giveUp(ctx, err)
	}
}

// begin writes the heads of the files, with columns for the outputs that are known
// and those of the given items. Should another item have a further one, the draft is
// of no use.
func (d *draft) begin(ctx context.Context, items []*ended) {
	columns := newColumnSet(slices.Concat(d.outputs, d.columns.of(d.batchID))...)
	for _, it := range items {
		if it != nil {
			columns.addLeaves(it.Outcome.Output)
		}
	}
	if err := d.report.begin(d.inputs, columns.names); err != nil {
		d.giveUp(ctx, err)
	}
}

// giveUp closes the draft: its package is to be written anew.
func (d *draft) giveUp(ctx context.Context, cause error) {
	d.isBroken.Store(true)
	d.isClosed.Store(true)
	d.Log.LogAttrs(ctx, slog.LevelInfo, "the output package of a batch is not written while it runs",
		slog.String("executionBatchId", d.batchID.String()), slog.Any("error", cause))
}

// prepare makes the page of items that are to be recorded, if the draft is open
// already; otherwise that is done when it is the next.
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

// format makes the page of its items in memory or, where some are not there, of what
// is recorded. There is none if some of them have not ended or the draft is closed.
func (d *draft) format(ctx context.Context, p *draftPage) error {
	if d.isClosed.Load() {
		return nil
	}
	d.beginning.Do(func() { d.begin(ctx, p.items) })
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

// add puts items, which are recorded now, into the draft, and what has waited for
// them; or they wait themselves.
func (d *draft) add(ctx context.Context, p *draftPage) {
	if d == nil {
		return
	}
	<-d.opened
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.isClosed.Load() || p.first < d.next: // what is missing before another page may have been read with it
		return
	case p.page == nil && p.size() > pageBytesMax:
		d.isClosed.Store(true)
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

// mayWait reports whether there is nothing to write yet: what is next may be running.
func (d *draft) mayWait() bool {
	return d.ahead[d.next] == nil && len(d.ahead) <= draftPagesAhead && d.drafts.bytesAhead.Load() <= draftBytesAhead
}

// errMoreColumns says that an item has outputs for which results.csv has no column.
var errMoreColumns = errors.New("an item has further outputs than those before")

// finish writes what waits and the little that is missing before it. The caller has
// taken the draft.
func (d *draft) finish(ctx context.Context) error {
	defer d.drop()
	return d.write(ctx, func() bool { return d.firstAhead()-d.next > pageItemsMax })
}

// firstAhead is the first item that waits; some do.
func (d *draft) firstAhead() int32 { return slices.Min(slices.Collect(maps.Keys(d.ahead))) }

// drop has nothing wait any more. The caller holds the lock, or has all members.
func (d *draft) drop() {
	for first := range d.ahead {
		d.take(first)
	}
}

// take returns the page that waits and begins with an item; nil if there is none.
func (d *draft) take(first int32) *draftPage {
	p := d.ahead[first]
	if p != nil {
		delete(d.ahead, first)
		d.drafts.bytesAhead.Add(-p.bytes)
	}
	return p
}

// write puts what waits into the report, and what is missing before it, as long as it
// may not wait. The caller holds the lock, or has taken the draft.
func (d *draft) write(ctx context.Context, mayWait func() bool) error {
	for len(d.ahead) > 0 && !mayWait() {
		p := d.take(d.next)
		if p == nil {
			p = &draftPage{first: d.next, end: d.firstAhead()}
		}
		for d.next < p.end {
			isWritten, err := d.writeNext(ctx, p)
			if err != nil {
				return err
			}
			if !isWritten { // some of it runs elsewhere
				d.drop()
				return nil
			}
		}
	}
	return nil
}

// writeNext writes a page or, of one that is to be read, as much as is read at a time.
func (d *draft) writeNext(ctx context.Context, p *draftPage) (isWritten bool, err error) {
	if p.page == nil && !p.isWhole() {
		d.beginning.Do(func() { d.begin(ctx, p.items) }) // the parts do not have the items
		p = &draftPage{first: d.next, end: min(p.end, d.next+d.report.pageItems())}
	}
	if p.page == nil {
		if err := d.format(ctx, p); err != nil || p.page == nil {
			return false, err
		}
	}
	d.isBroken.Store(true) // should it be half written
	if err := d.report.write(p.page); err != nil {
		d.giveUp(ctx, err)
		return false, err
	}
	d.isBroken.Store(false)
	d.next = p.end
	return true, nil
}

// read makes a page of what the database has; it stays without one if not all of
// its items are recorded as ended.
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

// takeDraft returns the draft of a batch whose items have ended, to be finished;
// nil if there is none that is as it should be.
func (s *Service) takeDraft(ctx context.Context, row *queries.BatchGetForReportRow) *draft {
	s.drafts.mu.Lock()
	d := s.drafts.batches[row.ID]
	delete(s.drafts.batches, row.ID)
	s.drafts.mu.Unlock()
	if d == nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, draftTakeMax)
	defer cancel()
	if err := d.members.Acquire(bounded, math.MaxInt64); err != nil {
		d.isClosed.Store(true) // who leaves drops what waits
		return nil
	}
	if !d.isOf(ctx, row) {
		d.drop()
		return nil
	}
	return d
}

// isOf reports whether the draft is that of a batch whose items have ended, with
// the columns that it has now. The caller has taken it.
func (d *draft) isOf(ctx context.Context, row *queries.BatchGetForReportRow) bool {
	if d.report == nil || row.DraftPackageID == nil || *row.DraftPackageID != d.report.packageID || d.attempt != row.Attempt {
		return false
	}
	d.outputs = row.OutputColumns
	d.beginning.Do(func() { d.begin(ctx, nil) }) // nothing was written
	return !d.isBroken.Load() && slices.Equal(d.report.inputs, row.InputColumns) && slices.Equal(d.report.outputs, sortedColumns(row.OutputColumns))
}
