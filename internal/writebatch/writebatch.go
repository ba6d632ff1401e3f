// Package writebatch is group commit: callers that write at about the same time share a
// statement and its commit. It must not know what the statements write.
package writebatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tranche/internal/fault"
	"tranche/internal/postgres"
)

// Limits of one statement. A single item may be larger than BytesMax.
const (
	ItemsMax = 500
	BytesMax = 4 << 20
	timeMax  = 40 * time.Second // longer than the server's statement_timeout
)

// retryPause is the pause between attempts while the database is unavailable.
const retryPause = 500 * time.Millisecond

// Config configures a Writer.
type Config[K comparable, T, R any] struct {
	// Write writes all items or none, in one statement or transaction. It returns a result
	// for each item; nil results are zero values.
	Write func(ctx context.Context, key K, items []T) ([]R, error)
	// Size returns about how many bytes an item has; nil counts no bytes.
	Size func(item T) int
	// Linger is how long the writer waits for more items after a statement with several. An
	// item that comes alone never waits.
	Linger time.Duration
	// Retry repeats a statement while the database is unavailable, until no caller waits
	// for it any more.
	Retry bool
}

// Writer writes the items of concurrent callers together. Each key has a queue and, while
// items wait in it, one goroutine that writes them in order. Items of different keys never
// share a statement and never wait for each other. A Writer is safe for concurrent use.
type Writer[K comparable, T, R any] struct {
	config Config[K, T, R]
	mu     sync.Mutex
	queues map[K][]*entry[T, R] // a key exists while its goroutine runs
}

// entry is an item and, once done is closed, its result.
type entry[T, R any] struct {
	ctx    context.Context // of the caller
	item   T
	result R
	err    error
	done   chan struct{}
}

// New returns a Writer.
func New[K comparable, T, R any](c Config[K, T, R]) *Writer[K, T, R] {
	return &Writer[K, T, R]{config: c, queues: map[K][]*entry[T, R]{}}
}

// Write queues an item and waits until it is committed or refused. If ctx ends first, Write
// returns its error, and the item may be written nevertheless. If a statement is refused,
// its items are written one by one, so that a bad item fails alone. Errors are those of
// postgres.Translate; fault.Unavailable fails all items of the statement.
func (w *Writer[K, T, R]) Write(ctx context.Context, key K, item T) (R, error) {
	e := &entry[T, R]{ctx: ctx, item: item, done: make(chan struct{})}
	w.mu.Lock()
	queue, isRunning := w.queues[key]
	w.queues[key] = append(queue, e)
	w.mu.Unlock()
	if !isRunning {
		go w.run(context.WithoutCancel(ctx), key)
	}
	select {
	case <-e.done:
		return e.result, e.err
	case <-ctx.Done():
		var none R
		return none, ctx.Err()
	}
}

// Queued returns how many items of a key wait for a statement to begin.
func (w *Writer[K, T, R]) Queued(key K) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queues[key])
}

// run writes the items of a key until none is queued.
func (w *Writer[K, T, R]) run(ctx context.Context, key K) {
	for {
		written := w.writeNext(ctx, key)
		if written == 0 {
			return
		}
		if written > 1 {
			time.Sleep(w.config.Linger)
		}
	}
}

// writeNext writes the items at the head of a queue and returns how many there were.
func (w *Writer[K, T, R]) writeNext(ctx context.Context, key K) int {
	entries := w.take(key)
	if len(entries) == 0 {
		return 0
	}
	w.writeTogether(ctx, key, entries)
	for _, e := range entries {
		close(e.done)
	}
	return len(entries)
}

// take removes the items of the next statement from a queue. It deletes an empty queue.
func (w *Writer[K, T, R]) take(key K) []*entry[T, R] {
	w.mu.Lock()
	defer w.mu.Unlock()
	queue := w.queues[key]
	if len(queue) == 0 {
		delete(w.queues, key)
		return nil
	}
	n, bytes := 0, 0
	for n < len(queue) && n < ItemsMax {
		if w.config.Size != nil {
			bytes += w.config.Size(queue[n].item)
		}
		if n > 0 && bytes > BytesMax {
			break
		}
		n++
	}
	entries := slices.Clone(queue[:n])
	clear(queue[:n]) // a queue that never empties must not keep written items in memory
	if queue = queue[n:]; len(queue) == 0 {
		queue = nil
	}
	w.queues[key] = queue
	return entries
}

// writeTogether writes items in one statement. If it is refused, it writes them one by one.
func (w *Writer[K, T, R]) writeTogether(ctx context.Context, key K, entries []*entry[T, R]) {
	items := make([]T, len(entries))
	for i, e := range entries {
		items[i] = e.item
	}
	results, err := w.try(ctx, key, items)
	for w.config.Retry && errors.Is(err, fault.Unavailable) && haveCallers(entries) {
		time.Sleep(retryPause)
		results, err = w.try(ctx, key, items)
	}
	if err != nil && len(entries) > 1 && !errors.Is(err, fault.Unavailable) {
		for i := range entries {
			w.writeTogether(ctx, key, entries[i:i+1])
		}
		return
	}
	for i, e := range entries {
		if e.err = err; err == nil && results != nil {
			e.result = results[i]
		}
	}
}

// try executes one statement.
func (w *Writer[K, T, R]) try(ctx context.Context, key K, items []T) (results []R, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeMax)
	defer cancel()
	err = fault.Safely(func() (err error) {
		results, err = w.config.Write(ctx, key, items)
		if err == nil && results != nil && len(results) != len(items) {
			err = fmt.Errorf("%d results for %d items", len(results), len(items))
		}
		return err
	})
	return results, postgres.Translate(err)
}

// haveCallers reports whether any caller still waits for its item.
func haveCallers[T, R any](entries []*entry[T, R]) bool {
	return slices.ContainsFunc(entries, func(e *entry[T, R]) bool { return e.ctx.Err() == nil })
}
