package batch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"tranche/internal/fault"
	"tranche/internal/postgres"
)

const (
	// gatherTime is how long items are gathered before they are read or written
	// together, beside the time that the writing before takes.
	gatherTime = time.Millisecond
	// gatherBytesMax bounds what a statement holds, as far as items let it: one may
	// have more. Hundreds of items with states of megabytes would take longer than a
	// write may, or more than PostgreSQL takes at a time.
	gatherBytesMax = 8 << 20
	// gatherWriteTimeMax bounds one attempt to write items.
	gatherWriteTimeMax = 30 * time.Second
	// awayRetryWait is the pause before another attempt while the database is
	// away: what effects gave must not be lost for that.
	awayRetryWait = 500 * time.Millisecond
)

// gatherer writes the items of a batch that come at about the same time in one
// statement (group commit). Each batch that has items waiting has a writer, which takes
// the items that came while it wrote those before. Items of different batches are never
// mixed, and while the database is away the writer tries again. (Single executions share
// commits by the coalescer of package execution.)
type gatherer[T sized] struct {
	write  func(ctx context.Context, tenantID, batchID uuid.UUID, items []T) error
	mu     sync.Mutex
	queues map[uuid.UUID]*itemQueue[T]
}

// sized is what is gathered; size is about how many bytes it has.
type sized interface{ size() int }

func (*loading) size() int { return 0 }

func (c *checkpoint) size() int { return len(c.State) }

func (e *ended) size() int { return len(e.State) + len(e.ResultText) }

func (it *chunkItem) size() int {
	size := len(it.row.Inputs[it.at])
	if it.first != nil {
		size += len(it.first.State)
	}
	if it.end != nil {
		size += it.end.size()
	}
	return size
}

// itemQueue holds the items of one batch that wait to be written.
type itemQueue[T sized] struct {
	tenantID, batchID uuid.UUID
	waiting           []*arrival[T]
}

// arrival is an item and whoever waits for it to be written.
type arrival[T sized] struct {
	ctx  context.Context // of the job that waits for the answer
	item T
	done chan error
}

func newGatherer[T sized](write func(ctx context.Context, tenantID, batchID uuid.UUID, items []T) error) *gatherer[T] {
	return &gatherer[T]{write: write, queues: map[uuid.UUID]*itemQueue[T]{}}
}

// add hands an item over and waits until it is written or ctx ends.
func (g *gatherer[T]) add(ctx context.Context, tenantID, batchID uuid.UUID, item T) error {
	a := &arrival[T]{ctx: ctx, item: item, done: make(chan error, 1)}
	g.mu.Lock()
	q := g.queues[batchID]
	if q == nil {
		q = &itemQueue[T]{tenantID: tenantID, batchID: batchID}
		g.queues[batchID] = q
		go g.serve(context.WithoutCancel(ctx), q)
	}
	q.waiting = append(q.waiting, a)
	g.mu.Unlock()
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serve writes the items that wait until there are none.
func (g *gatherer[T]) serve(ctx context.Context, q *itemQueue[T]) {
	for {
		time.Sleep(gatherTime)
		g.mu.Lock()
		taken := q.waiting
		if len(taken) == 0 {
			delete(g.queues, q.batchID)
			g.mu.Unlock()
			return
		}
		q.waiting = nil
		g.mu.Unlock()
		for len(taken) > 0 {
			n := fitting(len(taken), func(i int) int { return taken[i].item.size() })
			g.writeAll(ctx, q, taken[:n])
			taken = taken[n:]
		}
	}
}

// fitting is how many of the first of so many items one statement takes, at least one.
func fitting(items int, size func(i int) int) int {
	bytes := 0
	for n := range items {
		if bytes += size(n); bytes > gatherBytesMax && n > 0 {
			return n
		}
	}
	return items
}

// writeAll writes items together; those that cannot be written with their
// neighbours one by one, so that none fails for another.
func (g *gatherer[T]) writeAll(ctx context.Context, q *itemQueue[T], taken []*arrival[T]) {
	err := g.tryWrite(ctx, q, taken)
	for _, a := range taken {
		if err != nil && len(taken) > 1 && a.ctx.Err() == nil {
			a.done <- g.tryWrite(ctx, q, []*arrival[T]{a})
			continue
		}
		a.done <- err
	}
}

// tryWrite writes items, again and again while the database is away and anybody
// waits for them.
func (g *gatherer[T]) tryWrite(ctx context.Context, q *itemQueue[T], taken []*arrival[T]) error {
	items := make([]T, len(taken))
	for i, a := range taken {
		items[i] = a.item
	}
	for {
		err := g.writeOnce(ctx, q, items)
		if !errors.Is(err, fault.Unavailable) || allGone(taken) {
			return err
		}
		time.Sleep(awayRetryWait)
	}
}

func (g *gatherer[T]) writeOnce(ctx context.Context, q *itemQueue[T], items []T) error {
	ctx, cancel := context.WithTimeout(ctx, gatherWriteTimeMax)
	defer cancel()
	return postgres.Translate(fault.Safely(func() error {
		return g.write(ctx, q.tenantID, q.batchID, items)
	}))
}

func allGone[T sized](taken []*arrival[T]) bool {
	for _, a := range taken {
		if a.ctx.Err() == nil {
			return false
		}
	}
	return true
}
