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

	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// The output package of a batch is begun while its items run: a process that runs chunks
// of the batch keeps a draft of it, into which it puts what came of them, from memory and
// in the order of the items. Nothing depends on a draft: where there is none, as after a
// crash, or it is not what it should be, PostProcess reads what was recorded.
//
// In the order of time, and by whom:
//
//  1. Whoever runs a chunk joins the draft of its batch (joinDraft). The first to join makes
//     it, and open makes the package beside the items that run: it becomes the draft package
//     of the batch's row, unless that has one, which is then another process'.
//  2. When the items of the chunk are recorded, their page is added (add). If it is the next,
//     it is written at once, with the pages that waited for it, else it waits. Chunks without
//     effects make the text of their page before they record it (prepare).
//  3. Whoever joined leaves (leave), in any case.
//  4. PostProcess, in this process or another, takes the draft out of those of its process,
//     waits until all who joined have left (takeDraft), writes the pages that wait (finish)
//     and reads the rest.
//
// A draft whose batch ends elsewhere or is paused is abandoned: another takes its place
// after draftIdleMax (joinDraft), or it ends with its process. Its package remains the
// batch's draft package until PostProcess, wherever it runs, replaces and deletes it
// (replaceDraft).
//
// The life of a draft is in this file, its pages are in draft_page.go, and how they are put
// in order and written is in draft_write.go.

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
	mu         sync.Mutex // guards batches, and usedAt of each
	batches    map[uuid.UUID]*draft
	bytesAhead atomic.Int64 // of pages that wait, of all drafts
}

// draft is the output package of a batch whose items run. A nil one takes nothing.
type draft struct {
	*Service
	tenantID, batchID uuid.UUID
	attempt           int32 // of the batch
	usedAt            time.Time
	// members counts those who joined and have not left: each holds one of it. Who holds
	// all of it has taken the draft, for itself alone.
	members *semaphore.Weighted
	state   atomic.Int32 // draftOpen, draftClosed or draftUseless: it only ever grows

	// What follows is set by open and is as it was then once opened is closed; without a
	// report the draft is useless.
	opened          chan struct{}
	report          *report
	inputs, outputs []string // the columns of the batch, as far as they were known
	beginning       sync.Once

	// What follows, and the writing of the report, is guarded by mu, which who has taken
	// the draft does not need.
	mu    sync.Mutex
	next  int32                // the items before are in the report
	ahead map[int32]*draftPage // pages that wait for items before them, by their first
}

// The states of a draft.
const (
	draftOpen    int32 = iota
	draftClosed        // it takes no more pages; PostProcess goes on after those in the report
	draftUseless       // its report is not what it should be; PostProcess writes another
)

// isOpen reports whether more pages are put into the draft.
func (d *draft) isOpen() bool { return d != nil && d.state.Load() == draftOpen }

// close has no more pages put into the draft. Those that wait are dropped by whoever
// leaves next.
func (d *draft) close() { d.state.CompareAndSwap(draftOpen, draftClosed) }

// joinDraft returns the draft of a batch for an attempt of it, to be left when nothing
// more comes from the caller; nil if there is none.
func (s *Service) joinDraft(ctx context.Context, tenantID, batchID uuid.UUID, attempt int32) *draft {
	s.drafts.mu.Lock()
	defer s.drafts.mu.Unlock()
	now, batches := s.Clock(), s.drafts.batches
	d := batches[batchID]
	if d == nil {
		for id, other := range batches { // abandoned ones make room
			if now.Sub(other.usedAt) > draftIdleMax && other.members.TryAcquire(math.MaxInt64) {
				other.drop()
				delete(batches, id)
			}
		}
		if len(batches) >= draftsMax {
			return nil
		}
		d = &draft{
			Service: s, tenantID: tenantID, batchID: batchID, attempt: attempt,
			members: semaphore.NewWeighted(math.MaxInt64), opened: make(chan struct{}), ahead: map[int32]*draftPage{},
		}
		batches[batchID] = d
		go d.open(ctx)
	}
	if d.attempt != attempt {
		return nil
	}
	d.usedAt = now
	if !d.members.TryAcquire(1) { // does not happen: who takes a draft removes it first
		return nil
	}
	return d
}

// leave says that nothing more comes from a caller who joined.
func (d *draft) leave() {
	if d == nil {
		return
	}
	<-d.opened // open, which runs beside the items, ends before they do
	if !d.isOpen() {
		d.mu.Lock()
		d.drop()
		d.mu.Unlock()
	}
	d.members.Release(1)
}

// open makes the package, beside the items that run first.
func (d *draft) open(ctx context.Context) {
	defer close(d.opened)
	ctx = context.WithoutCancel(ctx) // the package is written by other jobs too
	err := fault.Safely(func() error {
		return postgres.InTx(ctx, d.Pool, func(tx pgx.Tx) error {
			r, err := d.newReport(ctx, tx, d.tenantID)
			if err != nil {
				return err
			}
			row, err := d.q.BatchDraftPackageBegin(ctx, tx, queries.BatchDraftPackageBeginParams{
				TenantID: d.tenantID, ID: d.batchID, Attempt: d.attempt, PackageID: r.packageID,
			})
			d.report, d.inputs, d.outputs = r, row.InputColumns, row.OutputColumns
			return err
		})
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows): // another process has one, or no items of the attempt run any more
		d.state.Store(draftUseless)
	case err != nil:
		d.giveUp(ctx, err)
	}
}

// giveUp makes the draft useless: its package is to be written anew.
func (d *draft) giveUp(ctx context.Context, cause error) {
	d.state.Store(draftUseless)
	d.Log.LogAttrs(ctx, slog.LevelInfo, "the output package of a batch is not written while it runs",
		slog.String("executionBatchId", d.batchID.String()), slog.Any("error", cause))
}

// takeDraft takes the draft of a batch whose items have ended, to be finished; nil if
// this process has none, or none that is as it should be.
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
		d.close()
		return nil
	}
	if !d.isOf(ctx, row) {
		d.drop()
		return nil
	}
	return d
}

// isOf reports whether the report is what the given batch's should be: of its attempt,
// with the columns that it has now that all items have ended. The caller has taken the
// draft.
func (d *draft) isOf(ctx context.Context, row *queries.BatchGetForReportRow) bool {
	if d.report == nil || row.DraftPackageID == nil || *row.DraftPackageID != d.report.packageID || d.attempt != row.Attempt {
		return false
	}
	d.outputs = row.OutputColumns
	d.begin(ctx, nil) // if nothing was written
	return d.state.Load() != draftUseless && slices.Equal(d.report.inputs, row.InputColumns) && slices.Equal(d.report.outputs, sortedColumns(row.OutputColumns))
}
