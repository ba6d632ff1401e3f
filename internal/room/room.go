// Package room bounds what tenants use at a time, each by itself: so nobody waits for
// what another does. It must not know what is used.
package room

import (
	"context"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"
)

// Rooms are those of all tenants for one thing, each as large as the others. It is safe
// for concurrent use.
type Rooms struct {
	most    int64
	mu      sync.Mutex
	tenants map[uuid.UUID]*room // those that have or want some
}

type room struct {
	*semaphore.Weighted
	users int
}

// New returns rooms in each of which there is so much.
func New(most int64) *Rooms { return &Rooms{most: most, tenants: map[uuid.UUID]*room{}} }

// Enter waits until there is room for so much beside what others of the tenant use, in
// the order in which they came; what is larger than the room takes all of it. leave is
// to be called once, when it is used no more. The error is ctx's.
func (r *Rooms) Enter(ctx context.Context, tenantID uuid.UUID, size int64) (leave func(), err error) {
	size = min(size, r.most)
	of := r.open(tenantID)
	if err := of.Acquire(ctx, size); err != nil {
		r.close(tenantID, of)
		return nil, err
	}
	return func() {
		of.Release(size)
		r.close(tenantID, of)
	}, nil
}

// Users is how many of a tenant have room or wait for it.
func (r *Rooms) Users(tenantID uuid.UUID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of := r.tenants[tenantID]; of != nil {
		return of.users
	}
	return 0
}

func (r *Rooms) open(tenantID uuid.UUID) *room {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.tenants[tenantID]
	if of == nil {
		of = &room{Weighted: semaphore.NewWeighted(r.most)}
		r.tenants[tenantID] = of
	}
	of.users++
	return of
}

// close forgets a room that nobody uses.
func (r *Rooms) close(tenantID uuid.UUID, of *room) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of.users--; of.users == 0 {
		delete(r.tenants, tenantID)
	}
}
