package batch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// Items with effects wait in chunks too. Before an item's first call nothing of it
// is recorded: that it will be made follows from the chunk, and so does the id
// that its key bears. So a chunk is held by whoever runs its items, and whoever
// comes meanwhile looks again later. It bears the holder's token: what a holder
// records asks for it, so that one who was taken for dead records nothing.

const (
	// letGoTimeMax bounds an attempt to let go of a chunk.
	letGoTimeMax = 5 * time.Second
	// idsKeepMax is how old the ids of items that wait may be: longer than services
	// remember an idempotency key, and not so long that the month of the ids is dropped.
	idsKeepMax = 21 * 24 * time.Hour
)

// An item's offset in its chunk has to fit into twelve bits of its id (itemID).
var _ [1<<12 - chunkItemsMax - chunkItemsOfEffects]struct{}

// itemID is the id of an item of a chunk: the UUIDv7 that was made for the chunk,
// its twelve bits after the version (RFC 9562, rand_a) replaced by the item's
// offset. It is the same in every run of the item.
func itemID(idsFrom uuid.UUID, offset int32) uuid.UUID {
	binary.BigEndian.PutUint16(idsFrom[6:8], 7<<12|uint16(offset)) // #nosec G115 -- of at most twelve bits
	return idsFrom
}

// heldChunk is a chunk that this process has taken.
type heldChunk struct {
	*Service
	tenantID, batchID uuid.UUID
	first             int32
	token             uuid.UUID
	row               queries.BatchChunkAcquireRow // what of it is not recorded
}

// heldChunks are the chunks that this process holds, by token. The rows may say that it
// holds more: what lets go of a chunk may not have reached its row.
type heldChunks struct {
	mu     sync.Mutex
	tokens map[uuid.UUID]bool
}

func (h *heldChunks) add(token uuid.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tokens == nil {
		h.tokens = map[uuid.UUID]bool{}
	}
	h.tokens[token] = true
}

func (h *heldChunks) remove(token uuid.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.tokens, token)
}

func (h *heldChunks) has(token uuid.UUID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tokens[token]
}

// isHeld reports whether a chunk is held by a process that lives.
func (s *Service) isHeld(token, holderID *uuid.UUID, holderLives bool) bool {
	switch {
	case token == nil || holderID == nil:
		return false
	case *holderID == s.Executions.ProcessID:
		return s.heldChunks.has(*token)
	default:
		return holderLives
	}
}

// hold takes a chunk from whoever had it (nil: nobody yet); nil if another was
// faster. It is to be let go in any case.
func (s *Service) hold(ctx context.Context, tenantID, batchID uuid.UUID, first int32, before *uuid.UUID) (*heldChunk, error) {
	h := &heldChunk{Service: s, tenantID: tenantID, batchID: batchID, first: first, token: uuid.New()}
	s.heldChunks.add(h.token)
	err := h.take(ctx, before)
	if err == nil {
		return h, nil
	}
	if errors.Is(err, pgx.ErrNoRows) {
		s.heldChunks.remove(h.token)
		return nil, nil
	}
	err = fmt.Errorf("take chunk %d of batch %s: %w", first, batchID, err)
	return nil, errors.Join(postgres.Translate(err), h.letGo(ctx)) // it may have been taken all the same
}

func (h *heldChunk) take(ctx context.Context, before *uuid.UUID) error {
	idsFrom, err := uuid.NewV7()
	if err != nil {
		return err
	}
	take := queries.BatchChunkAcquireParams{
		TenantID: h.tenantID, BatchID: h.batchID, FirstItem: h.first, Held: before, Token: h.token, HolderID: h.Executions.ProcessID,
		IdsFrom: idsFrom, OldestIdsFrom: queries.FirstIDAt(h.Clock().Add(-idsKeepMax)),
	}
	if before == nil {
		h.row, err = h.q.BatchChunkAcquire(ctx, h.Pool, take)
		return err
	}
	return postgres.InTx(ctx, h.Pool, func(tx pgx.Tx) error {
		if _, err := h.q.BatchChunkAcquire(ctx, tx, take); err != nil {
			return err
		}
		// Nobody records anything of it now, and what is recorded is to be seen.
		rest, err := h.q.BatchChunkShrink(ctx, tx, queries.BatchChunkShrinkParams{TenantID: h.tenantID, BatchID: h.batchID, FirstItem: h.first, Token: h.token})
		h.row = queries.BatchChunkAcquireRow(rest)
		return err
	})
}

// letGo leaves the chunk to whoever comes next, as soon as the database is there. If the
// process stops before that, its death leaves it to them.
func (h *heldChunk) letGo(ctx context.Context) error {
	return h.giveBack(ctx, func(ctx context.Context) error {
		return h.q.BatchChunkRelease(ctx, h.Pool, queries.BatchChunkReleaseParams{
			TenantID: h.tenantID, BatchID: h.batchID, FirstItem: h.first, Token: h.token,
		})
	})
}

// remove removes the chunk, all of whose items are recorded.
func (h *heldChunk) remove(ctx context.Context) error {
	return h.giveBack(ctx, func(ctx context.Context) error {
		return h.q.BatchChunkDelete(ctx, h.Pool, queries.BatchChunkDeleteParams{
			TenantID: h.tenantID, BatchID: h.batchID, FirstItem: h.first, Token: h.token,
		})
	})
}

func (h *heldChunk) giveBack(ctx context.Context, write func(context.Context) error) error {
	defer h.heldChunks.remove(h.token)
	for {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), letGoTimeMax)
		err := postgres.Translate(write(bounded))
		cancel()
		if !errors.Is(err, fault.Unavailable) || ctx.Err() != nil {
			return err
		}
		time.Sleep(awayRetryWait)
	}
}
