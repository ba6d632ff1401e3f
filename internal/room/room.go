// Package room bounds how much of something each tenant uses at a time: a semaphore for
// each of them, so that no tenant waits for what another does. It must not know what is
// used.
package room

import (
	"context"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"
)

// Rooms has a room of the same size for each tenant. It is safe for concurrent use.
type Rooms struct {
	most    int64
	mu      sync.Mutex
	tenants map[uuid.UUID]*room // of which somebody is in the room or waits for it
}

type room struct {
	*semaphore.Weighted
	users int
}

// New returns rooms of the given size.
func New(most int64) *Rooms { return &Rooms{most: most, tenants: map[uuid.UUID]*room{}} }

// Enter waits for so much of the tenant's room, behind those who came before; what is
// larger than the room takes all of it. leave is to be called once, when it is used no
// more. The error is ctx's.
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

// Users is how many are in the room of a tenant or wait for it.
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
