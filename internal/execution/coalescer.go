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
	sharedItemsMax = 200
	sharedBytesMax = 4 << 20
	sharedTimeMax  = 40 * time.Second // more than a statement may take
	// laneBytesMax is up to how many bytes an item is small (lanes).
	laneBytesMax = sharedBytesMax / 16
)

// lanes is a coalescer whose large items have a writer of their own: a statement with
// megabytes takes a tenth of a second, and small ones, those of other tenants too, would
// stand in line behind all of them.
type lanes[T, R any] struct{ small, large coalescer[T, R] }

// set says how items are written; the arguments are the fields of coalescer.
func (l *lanes[T, R]) set(bytes func(T) int, linger time.Duration, write func(context.Context, []T) ([]R, error)) {
	for _, c := range []*coalescer[T, R]{&l.small, &l.large} {
		c.bytes, c.linger, c.write = bytes, linger, write
	}
}

// do is that of coalescer.
func (l *lanes[T, R]) do(ctx context.Context, item T) (R, error) {
	if l.small.bytes(item) > laneBytesMax {
		return l.large.do(ctx, item)
	}
	return l.small.do(ctx, item)
}

// coalescer lets concurrent callers share a statement and its commit (group commit):
// one of them writes whatever is queued. A caller who is alone writes at once; the more
// callers there are, the more share a commit. Reads share statements in the same way.
//
// The gatherer of package batch does the same for the items of one batch, and in two ways
// that a caller who waits for an answer would feel: it always waits for company first, and
// it writes again and again while the database is away.
type coalescer[T, R any] struct {
	// write writes all items or none and returns what came of each.
	write func(ctx context.Context, items []T) ([]R, error)
	// bytes is about what an item takes on its way; nil where that is little.
	bytes func(T) int
	// linger is how long the writer waits for more after a write that several shared.
	linger time.Duration
	// aside runs the writer once the caller who wrote first is answered; nil starts a
	// goroutine.
	aside func(func())

	shared bool // several shared the last write; only the writer looks

	mu      sync.Mutex
	queue   []*call[T, R]
	writing bool
}

// call is an item and, once done is closed, what came of it.
type call[T, R any] struct {
	item   T
	result R
	err    error
	done   chan struct{}
}

// do returns once the item is committed or refused. A caller who finds nobody writing
// writes its own item, together with what others have queued by then, which saves a
// switch of goroutines; what is queued meanwhile is written by another goroutine. Where
// ctx ends while another writes, do returns and the item is written all the same.
func (c *coalescer[T, R]) do(ctx context.Context, item T) (R, error) {
	q := &call[T, R]{item: item, done: make(chan struct{})}
	c.mu.Lock()
	c.queue = append(c.queue, q)
	writes := !c.writing
	c.writing = true
	c.mu.Unlock()
	if writes {
		ctx := context.WithoutCancel(ctx)
		c.writeNext(ctx)
		switch {
		case !c.goesOn():
		case c.aside != nil:
			c.aside(func() { c.writeAll(ctx) })
		default:
			go c.writeAll(ctx)
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
func (c *coalescer[T, R]) writeAll(ctx context.Context) {
	for {
		c.writeNext(ctx)
		if !c.goesOn() {
			return
		}
	}
}

// writeNext writes the items at the head of the queue.
func (c *coalescer[T, R]) writeNext(ctx context.Context) {
	if c.shared && c.linger > 0 {
		time.Sleep(c.linger)
	}
	items := c.take()
	c.shared = len(items) > 1
	c.writeTogether(ctx, items)
	for _, q := range items {
		close(q.done)
	}
}

// goesOn reports whether more is queued; if not, the next caller writes.
func (c *coalescer[T, R]) goesOn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing = len(c.queue) > 0
	return c.writing
}

// take removes the items that are written next from the queue.
func (c *coalescer[T, R]) take() []*call[T, R] {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, bytes := 0, 0
	for n < len(c.queue) && n < sharedItemsMax {
		if c.bytes != nil {
			bytes += c.bytes(c.queue[n].item)
		}
		if n > 0 && bytes > sharedBytesMax {
			break
		}
		n++
	}
	items := slices.Clone(c.queue[:n])
	clear(c.queue[:n]) // lets go of what is written, also while there is always more
	if c.queue = c.queue[n:]; len(c.queue) == 0 {
		c.queue = nil
	}
	return items
}

// writeTogether writes items in one statement. If that is refused each is
// written by itself, so that a bad one fails alone; where the database is away,
// all have failed.
func (c *coalescer[T, R]) writeTogether(ctx context.Context, items []*call[T, R]) {
	ctx, cancel := context.WithTimeout(ctx, sharedTimeMax)
	defer cancel()
	all := make([]T, len(items))
	for i, q := range items {
		all[i] = q.item
	}
	var results []R
	err := fault.Safely(func() (err error) {
		results, err = c.write(ctx, all)
		return err
	})
	err = postgres.Translate(err)
	if err != nil && len(items) > 1 && !errors.Is(err, fault.Unavailable) {
		for i := range items {
			c.writeTogether(ctx, items[i:i+1])
		}
		return
	}
	for i, q := range items {
		if q.err = err; err == nil {
			q.result = results[i]
		}
	}
}

// whose is the context of a statement for several callers: of their tenant where all
// have the same, else of the system.
func whose[T any](ctx context.Context, items []T, tenant func(T) uuid.UUID) context.Context {
	for _, item := range items[1:] {
		if tenant(item) != tenant(items[0]) {
			return postgres.AsSystem(ctx)
		}
	}
	return postgres.WithTenant(ctx, tenant(items[0]))
}
