package batch

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/semaphore"

	"tranche/internal/engine"
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
	// draftIdleMax is how long a draft is kept that nothing is put into, while
	// others want its place.
	draftIdleMax = time.Minute
	// What waits for items before it to be recorded. More means that what is missing
	// is not run here: items that failed before they ran, or another process'.
	draftPagesAhead = 32       // of a draft
	draftBytesAhead = 16 << 20 // of all drafts of the process
	// draftTakeMax is how long PostProcess waits for what is on its way to a draft.
	draftTakeMax = time.Second
)

// drafts are those that this process writes.
type drafts struct {
	mu      sync.Mutex
	batches map[uuid.UUID]*draft
	ahead   atomic.Int64 // bytes of pages that wait
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
	inputs, outputs []string // columns that the batch had then
	beginning       sync.Once
	isClosed        atomic.Bool // nothing more is put into it

	mu       sync.Mutex
	isBroken bool  // the report is not what it should be
	next     int32 // the items before are in the report
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

// bytes is about how long the page will be.
func (p *draftPage) bytes() (n int) {
	for i, it := range p.items {
		if n += len(p.rows.inputs[i]); it != nil {
			n += it.size()
		}
	}
	return n
}

// size is how long the page is, in bytes.
func (p *draftPage) size() (n int64) {
	for i := range p.page.texts {
		n += int64(p.page.texts[i].Len())
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
	d, isNew := s.draftOf(tenantID, batchID)
	if d == nil || !d.members.TryAcquire(1) {
		return nil
	}
	if isNew {
		go d.open(ctx)
	}
	return d
}

func (s *Service) draftOf(tenantID, batchID uuid.UUID) (d *draft, isNew bool) {
	s.drafts.mu.Lock()
	defer s.drafts.mu.Unlock()
	now, batches := s.Clock(), s.drafts.batches
	if isNew = batches[batchID] == nil; isNew {
		for id, d := range batches { // of batches that were paused, or that another process has ended
			if len(batches) >= draftsMax && now.Sub(d.usedAt) > draftIdleMax && d.members.TryAcquire(math.MaxInt64) {
				d.close()
				delete(batches, id)
			}
		}
		if len(batches) >= draftsMax {
			return nil, false
		}
		batches[batchID] = &draft{
			Service: s, tenantID: tenantID, batchID: batchID,
			members: semaphore.NewWeighted(math.MaxInt64), opened: make(chan struct{}), ahead: map[int32]*draftPage{},
		}
	}
	batches[batchID].usedAt = now
	return batches[batchID], isNew
}

func (d *draft) leave() {
	if d != nil {
		<-d.opened // it does not outlive who opened it
		d.members.Release(1)
	}
}

// open makes the package, beside the items that run first.
func (d *draft) open(ctx context.Context) {
	defer close(d.opened)
	ctx = context.WithoutCancel(ctx) // it is written by other jobs than this one
	err := safely(func() error {
		return postgres.InTx(ctx, d.Pool, func(tx pgx.Tx) error {
			r, err := d.newReport(ctx, tx, d.tenantID)
			if err != nil {
				return err
			}
			row, err := d.q.BatchDraftPackageBegin(ctx, tx, queries.BatchDraftPackageBeginParams{
				TenantID: d.tenantID, ID: d.batchID, PackageID: r.packageID,
			})
			d.report, d.inputs, d.outputs = r, row.InputColumns, row.OutputColumns
			return err
		})
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows): // it is another's to write
		d.stop()
	case err != nil:
		d.mu.Lock()
		defer d.mu.Unlock()
		d.giveUp(err)
	}
}

// begin writes the heads of the files, with columns for the outputs that are known
// and those of the given items. Should another item have a further one, the draft is
// of no use.
func (d *draft) begin(items []*ended) {
	columns := newColumnSet(slices.Concat(d.outputs, d.columns.of(d.batchID))...)
	for _, it := range items {
		if it != nil {
			columns.addLeaves(it.Outcome.Output)
		}
	}
	if err := d.report.begin(d.inputs, columns.names); err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.giveUp(err)
	}
}

// giveUp closes the draft: its package is to be written anew.
func (d *draft) giveUp(cause error) {
	d.isBroken = true
	d.close()
	d.Log.LogAttrs(context.Background(), slog.LevelInfo, "the output package of a batch is not written while it runs",
		slog.String("batchId", d.batchID.String()), slog.Any("error", cause))
}

// stop has nothing more be put into the draft.
func (d *draft) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.close()
}

// close is stop for who holds the lock. What waits is dropped.
func (d *draft) close() {
	d.isClosed.Store(true)
	for first := range d.ahead {
		d.take(first)
	}
}

// take returns the page that waits and begins with an item; nil if there is none.
func (d *draft) take(first int32) *draftPage {
	p := d.ahead[first]
	if p != nil {
		delete(d.ahead, first)
		d.drafts.ahead.Add(-p.size())
	}
	return p
}

// prepare makes the page of items that are to be recorded, if the draft is open
// already; add does otherwise.
func (d *draft) prepare(ctx context.Context, p *draftPage) {
	if d == nil || !p.isWhole() {
		return
	}
	select {
	case <-d.opened:
		d.format(ctx, p)
	default:
	}
}

// format makes the page: from memory or, where that does not have all of its items,
// of what is recorded. It stays without one where that is not possible.
func (d *draft) format(ctx context.Context, p *draftPage) {
	if d.isClosed.Load() {
		return
	}
	d.beginning.Do(func() { d.begin(p.items) })
	switch {
	case p.bytes() > pageBytesMax:
		d.stop()
	case p.isWhole():
		d.formatItems(ctx, p)
	default:
		_ = d.read(ctx, p) // PostProcess will meet the error again
	}
}

func (d *draft) formatItems(ctx context.Context, p *draftPage) {
	page, _ := d.report.pages.Get().(*reportPage)
	for i, it := range p.items {
		if i%lookOutEach == 0 {
			lookOut()
		}
		d.Executions.Callers.LetGoFirst(ctx)
		r, err := p.rows.result(i, it)
		if err != nil || page.write(r) != nil {
			return // PostProcess will meet the error again
		}
	}
	if page.flush() == nil {
		p.page = page
	}
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
	if p.page == nil {
		leave, err := d.turns.take(ctx, d.tenantID, d.batchID)
		if err != nil {
			return
		}
		d.format(ctx, p)
		leave()
	}
	if p.page == nil {
		return
	}
	leave, err := d.recording.take(ctx, d.tenantID, d.batchID)
	if err != nil {
		return
	}
	defer leave()
	d.put(ctx, p)
}

// errMoreColumns says that an item has outputs for which results.csv has no column.
var errMoreColumns = errors.New("an item has outputs that those of the first chunk did not have")

func (d *draft) put(ctx context.Context, p *draftPage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isClosed.Load() {
		return
	}
	if len(d.columns.of(d.batchID)) > len(d.report.outputs) {
		d.giveUp(errMoreColumns)
		return
	}
	d.ahead[p.first] = p
	d.drafts.ahead.Add(p.size())
	_ = d.write(ctx, true) // what is broken is known, and what could not be read will be again
}

// finish writes what waits and what is missing before it.
func (d *draft) finish(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.close()
	return d.write(ctx, false)
}

// write puts what is next into the report. What is missing before pages that wait
// is read, unless they may wait. The caller holds the lock.
func (d *draft) write(ctx context.Context, mayWait bool) error {
	for len(d.ahead) > 0 {
		p := d.take(d.next)
		if p == nil {
			if mayWait && len(d.ahead) <= draftPagesAhead && d.drafts.ahead.Load() <= draftBytesAhead {
				return nil
			}
			p = &draftPage{first: d.next, end: d.next + pageItemsMax}
			for first := range d.ahead {
				p.end = min(p.end, first)
			}
			if err := d.read(ctx, p); err != nil {
				return err
			}
			if p.page == nil { // it runs elsewhere
				d.close()
				return nil
			}
		}
		if err := d.report.write(p.page); err != nil {
			d.giveUp(err)
			return err
		}
		d.next = p.end
	}
	return nil
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
	if err := d.members.Acquire(bounded, math.MaxInt64); err != nil || !d.isOf(row) {
		d.stop()
		return nil
	}
	return d
}

// isOf reports whether the draft is that of a batch whose items have ended, with
// the columns that it has now. The caller has taken it.
func (d *draft) isOf(row *queries.BatchGetForReportRow) bool {
	return !d.isBroken && d.report != nil && row.DraftPackageID != nil && *row.DraftPackageID == d.report.packageID &&
		slices.Equal(d.report.inputs, row.InputColumns) && slices.Equal(d.report.outputs, sortedColumns(row.OutputColumns))
}
