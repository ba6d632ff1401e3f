package api

import (
	"context"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"tranche/internal/fault"
)

const (
	// roomBytes is how many bytes of large JSON a tenant has in this process at a
	// time. Decoded they take up to sixteen times as much.
	roomBytes = 48 << 20
	// roomLightBytes is the most of a text that needs no room.
	roomLightBytes = 64 << 10
)

// rooms bound what large JSON takes, for each tenant by itself: so nobody waits for
// the calls of another.
type rooms struct {
	mu      sync.Mutex
	tenants map[uuid.UUID]*room // those that have or want some
}

type room struct {
	*semaphore.Weighted
	users int
}

// enterRoom waits for as long as a body may take to arrive until there is room for so
// many bytes beside the others of the caller's tenant; leave is to be called when
// nothing of them is used any more. It answers fault.Unavailable, which says what
// there is too much of, if the wait was in vain.
func (s *Server) enterRoom(ctx context.Context, r *rooms, bytes int64, what string) (leave func(), err error) {
	if bytes <= roomLightBytes {
		return func() {}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, s.bodyTimeMax)
	defer cancel()
	leave, err = r.enter(bounded, principal(ctx).TenantID, bytes)
	if err != nil && ctx.Err() == nil {
		err = fault.Wrap(err, fault.Unavailable, "too many requests with large %s at a time", what)
	}
	return leave, err
}

// answerFrom waits until there is room to answer from so many bytes of stored JSON. It
// is left when the request has been answered, and entered once at most.
func (s *Server) answerFrom(ctx context.Context, bytes int) (err error) {
	requestOf(ctx).leave, err = s.enterRoom(ctx, &s.answers, int64(bytes), "answers")
	return err
}

func (r *rooms) enter(ctx context.Context, tenantID uuid.UUID, bytes int64) (leave func(), err error) {
	bytes = min(bytes, roomBytes)
	of := r.open(tenantID)
	if err := of.Acquire(ctx, bytes); err != nil {
		r.close(tenantID, of)
		return nil, err
	}
	return func() {
		of.Release(bytes)
		r.close(tenantID, of)
	}, nil
}

func (r *rooms) open(tenantID uuid.UUID) *room {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.tenants[tenantID]
	if of == nil {
		if r.tenants == nil {
			r.tenants = map[uuid.UUID]*room{}
		}
		of = &room{Weighted: semaphore.NewWeighted(roomBytes)}
		r.tenants[tenantID] = of
	}
	of.users++
	return of
}

// close forgets a room that nobody uses.
func (r *rooms) close(tenantID uuid.UUID, of *room) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of.users--; of.users == 0 {
		delete(r.tenants, tenantID)
	}
}
