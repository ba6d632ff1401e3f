package execution

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"tranche/internal/fault"
	"tranche/internal/postgres"
)

// Limits of one shared write.
const (
	groupItemsMax = 200
	groupBytesMax = 4 << 20
	groupTimeMax  = 40 * time.Second // more than a statement may take
	// laneBytesMax is what an item takes at most beside which others are written.
	laneBytesMax = groupBytesMax / 16
)

// lanes is a group whose large items have a writer of their own: a statement with
// megabytes takes a tenth of a second, and small ones, those of other tenants too, would
// stand in line behind all of them.
type lanes[T, R any] struct{ small, large group[T, R] }

// set says how items are written; as the members of group.
func (l *lanes[T, R]) set(bytes func(T) int, gather time.Duration, write func(context.Context, []T) ([]R, error)) {
	for _, g := range []*group[T, R]{&l.small, &l.large} {
		g.bytes, g.gather, g.write = bytes, gather, write
	}
}

// do is that of group.
func (l *lanes[T, R]) do(ctx context.Context, item T) (R, error) {
	if l.small.bytes(item) > laneBytesMax {
		return l.large.do(ctx, item)
	}
	return l.small.do(ctx, item)
}

// group lets concurrent callers share commits: one writer takes whatever is
// queued, without waiting for more unless gather says so, and writes it in one
// statement. Who is alone is written at once; the more callers there are, the
// more share a commit. Reads share statements in the same way. Unlike a gatherer of
// package batch it mixes tenants, and tells at once that the database is away:
// somebody may be waiting for the answer.
type group[T, R any] struct {
	// write writes all items or none and returns what came of each.
	write func(ctx context.Context, items []T) ([]R, error)
	// bytes is about what an item takes on its way; nil where that is little.
	bytes func(T) int
	// gather is how long is waited for more after a write that several shared.
	gather time.Duration
	// aside runs what writes when nobody waits in its place; nil is a goroutine.
	aside func(func())

	shared bool // the last write was several's; only who writes looks

	mu      sync.Mutex
	queue   []*queued[T, R]
	writing bool
}

// queued is an item and, once done is closed, what came of it.
type queued[T, R any] struct {
	item   T
	result R
	err    error
	done   chan struct{}
}

// do returns once the item is committed or refused. Whoever finds nobody
// writing writes, which is a switch of goroutines less than to have it done;
// what others have queued by then is written beside it. If ctx of one who waits
// ends before, the item is written all the same.
func (g *group[T, R]) do(ctx context.Context, item T) (R, error) {
	q := &queued[T, R]{item: item, done: make(chan struct{})}
	g.mu.Lock()
	g.queue = append(g.queue, q)
	writes := !g.writing
	g.writing = true
	g.mu.Unlock()
	if writes {
		ctx := context.WithoutCancel(ctx)
		g.writeNext(ctx)
		switch {
		case !g.goesOn():
		case g.aside != nil:
			g.aside(func() { g.writeAll(ctx) })
		default:
			go g.writeAll(ctx)
		}
		return q.result, q.err
	}
	select {
	case <-q.done:
		return q.result, q.err
	case <-ctx.Done():
		var none R
		return none, ctx.Err()
	}
}

// writeAll writes until nothing is queued.
func (g *group[T, R]) writeAll(ctx context.Context) {
	for {
		g.writeNext(ctx)
		if !g.goesOn() {
			return
		}
	}
}

// writeNext writes what is queued first.
func (g *group[T, R]) writeNext(ctx context.Context) {
	if g.shared && g.gather > 0 {
		time.Sleep(g.gather)
	}
	items := g.take()
	g.shared = len(items) > 1
	g.writeTogether(ctx, items)
	for _, q := range items {
		close(q.done)
	}
}

// goesOn reports whether more is queued; if not, the next caller writes.
func (g *group[T, R]) goesOn() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writing = len(g.queue) > 0
	return g.writing
}

// take removes the items that are written next from the queue.
func (g *group[T, R]) take() []*queued[T, R] {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, bytes := 0, 0
	for n < len(g.queue) && n < groupItemsMax {
		if g.bytes != nil {
			bytes += g.bytes(g.queue[n].item)
		}
		if n > 0 && bytes > groupBytesMax {
			break
		}
		n++
	}
	items := slices.Clone(g.queue[:n])
	clear(g.queue[:n]) // lets go of what is written, also while there is always more
	if g.queue = g.queue[n:]; len(g.queue) == 0 {
		g.queue = nil
	}
	return items
}

// writeTogether writes items in one statement. If that is refused each is
// written by itself, so that a bad one fails alone; where the database is away,
// all have failed.
func (g *group[T, R]) writeTogether(ctx context.Context, items []*queued[T, R]) {
	ctx, cancel := context.WithTimeout(ctx, groupTimeMax)
	defer cancel()
	all := make([]T, len(items))
	for i, q := range items {
		all[i] = q.item
	}
	var results []R
	err := fault.Safely(func() (err error) {
		results, err = g.write(ctx, all)
		return err
	})
	err = postgres.Translate(err)
	if err != nil && len(items) > 1 && !errors.Is(err, fault.Unavailable) {
		for i := range items {
			g.writeTogether(ctx, items[i:i+1])
		}
		return
	}
	for i, q := range items {
		if q.err = err; err == nil {
			q.result = results[i]
		}
	}
}

// whose is the context of a write for several callers: their tenant's where all
// are of one.
func whose[T any](ctx context.Context, items []T, tenant func(T) uuid.UUID) context.Context {
	for _, item := range items[1:] {
		if tenant(item) != tenant(items[0]) {
			return postgres.AsSystem(ctx)
		}
	}
	return postgres.WithTenant(ctx, tenant(items[0]))
}
