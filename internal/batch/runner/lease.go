package runner

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/batch"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// A worker that runs the items of a chunk with effects holds a lease of the chunk. Before
// the first call of an item nothing of the item is recorded: that the call will be made
// follows from the chunk, and so does the id in its Idempotency-Key. The chunk's row has the
// process and the token of the lease. Every statement that records items compares the token,
// so a worker that was considered dead records nothing more.

const (
	// releaseTimeMax bounds one attempt to release a lease.
	releaseTimeMax = 5 * time.Second
	// releaseRetryPause is the pause between attempts while the database is unavailable.
	releaseRetryPause = 500 * time.Millisecond
	// idsKeepMax is how old the ids of waiting items may be: longer than services remember
	// an idempotency key, and less than the time until the month of the ids is dropped.
	idsKeepMax = 21 * 24 * time.Hour
)

// An item's offset in its chunk must fit into twelve bits of its id (itemID).
var _ [1<<12 - batch.ChunkItemsMax - batch.ChunkItemsEffectsMax]struct{}

// itemID returns the id of an item of a chunk. It is the chunk's UUIDv7 with the item's
// offset in the twelve bits after the version (RFC 9562, rand_a), so it is the same in
// every run of the item.
func itemID(idsFrom uuid.UUID, offset int32) uuid.UUID {
	binary.BigEndian.PutUint16(idsFrom[6:8], 7<<12|uint16(offset)) // #nosec G115 -- of at most twelve bits
	return idsFrom
}

// leases is the set of tokens of the leases that this process holds. Rows may name more,
// because the statement that releases a lease may have failed.
type leases struct {
	mu     sync.Mutex
	tokens map[uuid.UUID]bool
}

func (l *leases) add(token uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tokens == nil {
		l.tokens = map[uuid.UUID]bool{}
	}
	l.tokens[token] = true
}

func (l *leases) remove(token uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tokens, token)
}

func (l *leases) has(token uuid.UUID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tokens[token]
}

// isLeased reports whether a live process holds the lease of a chunk.
func (r *Runner) isLeased(token, holderID *uuid.UUID, holderLives bool) bool {
	switch {
	case token == nil || holderID == nil:
		return false
	case *holderID == r.Executions.ProcessID:
		return r.leases.has(*token)
	default:
		return holderLives
	}
}

// lease is a chunk that this process holds.
type lease struct {
	r     *Runner
	key   batch.Key
	first int32 // index of the chunk's first item
	token uuid.UUID
	row   queries.BatchChunkAcquireRow // the items that are not recorded
}

// acquireLease takes the lease of a chunk whose token was previous (nil: none). It returns
// false if another worker was faster. The caller must release or remove the lease.
func (r *Runner) acquireLease(ctx context.Context, key batch.Key, first int32, previous *uuid.UUID) (*lease, bool, error) {
	l := &lease{r: r, key: key, first: first, token: uuid.New()}
	r.leases.add(l.token)
	err := l.acquire(ctx, previous)
	if err == nil {
		return l, true, nil
	}
	if errors.Is(err, pgx.ErrNoRows) {
		r.leases.remove(l.token)
		return nil, false, nil
	}
	err = fmt.Errorf("lease chunk %d of batch %s: %w", first, key.ID, err)
	return nil, false, errors.Join(postgres.Translate(err), l.release(ctx)) // it may have been committed nevertheless
}

func (l *lease) acquire(ctx context.Context, previous *uuid.UUID) error {
	idsFrom, err := uuid.NewV7()
	if err != nil {
		return err
	}
	acquire := queries.BatchChunkAcquireParams{
		TenantID: l.key.TenantID, BatchID: l.key.ID, FirstItem: l.first, Held: previous, Token: l.token, HolderID: l.r.Executions.ProcessID,
		IdsFrom: idsFrom, OldestIdsFrom: queries.FirstIDAt(l.r.Clock().Add(-idsKeepMax)),
	}
	if previous == nil {
		l.row, err = l.r.q.BatchChunkAcquire(ctx, l.r.Pool, acquire)
		return err
	}
	return postgres.InTx(ctx, l.r.Pool, func(tx pgx.Tx) error {
		if _, err := l.r.q.BatchChunkAcquire(ctx, tx, acquire); err != nil {
			return err
		}
		// The previous worker can record nothing more, so all that it recorded is visible.
		rest, err := l.r.q.BatchChunkShrink(ctx, tx, queries.BatchChunkShrinkParams{TenantID: l.key.TenantID, BatchID: l.key.ID, FirstItem: l.first, Token: l.token})
		l.row = queries.BatchChunkAcquireRow(rest)
		return err
	})
}

// release ends the lease. If the process dies before, its death ends the lease.
func (l *lease) release(ctx context.Context) error {
	return l.end(ctx, func(ctx context.Context) error {
		return l.r.q.BatchChunkRelease(ctx, l.r.Pool, queries.BatchChunkReleaseParams{
			TenantID: l.key.TenantID, BatchID: l.key.ID, FirstItem: l.first, Token: l.token,
		})
	})
}

// remove ends the lease and removes the chunk, all of whose items are recorded.
func (l *lease) remove(ctx context.Context) error {
	return l.end(ctx, func(ctx context.Context) error {
		return l.r.q.BatchChunkDelete(ctx, l.r.Pool, queries.BatchChunkDeleteParams{
			TenantID: l.key.TenantID, BatchID: l.key.ID, FirstItem: l.first, Token: l.token,
		})
	})
}

// end executes a statement that ends the lease. It tries again while the database is
// unavailable, until ctx ends.
func (l *lease) end(ctx context.Context, write func(context.Context) error) error {
	defer l.r.leases.remove(l.token)
	for {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeMax)
		err := postgres.Translate(write(bounded))
		cancel()
		if !errors.Is(err, fault.Unavailable) || ctx.Err() != nil {
			return err
		}
		time.Sleep(releaseRetryPause)
	}
}
