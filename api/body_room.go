package api

import (
	"context"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"
)

const (
	// bodyRoomBytes is how many bytes of large bodies a tenant has in this process at
	// a time. Decoded they take up to sixteen times as much.
	bodyRoomBytes = 48 << 20
	// bodyLightBytes is the most of a body that needs no room.
	bodyLightBytes = 64 << 10
)

// bodyRooms bound what large bodies take, for each tenant by itself: so nobody waits
// for the calls of another. Who waits has not been read, and its bytes are with the
// caller.
type bodyRooms struct {
	mu      sync.Mutex
	tenants map[uuid.UUID]*bodyRoom // those that have or want some
}

type bodyRoom struct {
	*semaphore.Weighted
	users int
}

// enter waits until there is room for a body of so many bytes, or ctx ends; leave is
// to be called when nothing of it is used any more.
func (r *bodyRooms) enter(ctx context.Context, tenantID uuid.UUID, bytes int64) (leave func(), err error) {
	bytes = min(bytes, bodyRoomBytes)
	room := r.open(tenantID)
	if err := room.Acquire(ctx, bytes); err != nil {
		r.close(tenantID, room)
		return nil, err
	}
	return func() {
		room.Release(bytes)
		r.close(tenantID, room)
	}, nil
}

func (r *bodyRooms) open(tenantID uuid.UUID) *bodyRoom {
	r.mu.Lock()
	defer r.mu.Unlock()
	room := r.tenants[tenantID]
	if room == nil {
		if r.tenants == nil {
			r.tenants = map[uuid.UUID]*bodyRoom{}
		}
		room = &bodyRoom{Weighted: semaphore.NewWeighted(bodyRoomBytes)}
		r.tenants[tenantID] = room
	}
	room.users++
	return room
}

// close forgets a room that nobody uses.
func (r *bodyRooms) close(tenantID uuid.UUID, room *bodyRoom) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if room.users--; room.users == 0 {
		delete(r.tenants, tenantID)
	}
}
