// Package limit has the semaphores of the service. PerTenant gives each tenant a weighted
// semaphore of its own. Fair shares one semaphore fairly between tenants and batches.
// The package must not know which resource a semaphore protects.
package limit

import (
	"context"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"
)

// PerTenant is a set of weighted semaphores of the same size, one for each tenant. No
// tenant waits for another. It is safe for concurrent use.
type PerTenant struct {
	size    int64
	mu      sync.Mutex
	tenants map[uuid.UUID]*tenantSemaphore // of tenants that have users
}

type tenantSemaphore struct {
	*semaphore.Weighted
	users int // callers that hold a part of the semaphore or wait for one
}

// NewPerTenant returns semaphores of the given size.
func NewPerTenant(size int64) *PerTenant {
	return &PerTenant{size: size, tenants: map[uuid.UUID]*tenantSemaphore{}}
}

// Acquire waits in first-in-first-out order until weight is free in the tenant's
// semaphore. A weight larger than the semaphore takes all of it. The caller must call
// release once. The error is ctx's.
func (l *PerTenant) Acquire(ctx context.Context, tenantID uuid.UUID, weight int64) (release func(), err error) {
	weight = min(weight, l.size)
	s := l.addUser(tenantID)
	if err := s.Acquire(ctx, weight); err != nil {
		l.removeUser(tenantID, s)
		return nil, err
	}
	return func() {
		s.Release(weight)
		l.removeUser(tenantID, s)
	}, nil
}

// Users returns how many callers hold a part of the tenant's semaphore or wait for one.
func (l *PerTenant) Users(tenantID uuid.UUID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.tenants[tenantID]; s != nil {
		return s.users
	}
	return 0
}

func (l *PerTenant) addUser(tenantID uuid.UUID) *tenantSemaphore {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.tenants[tenantID]
	if s == nil {
		s = &tenantSemaphore{Weighted: semaphore.NewWeighted(l.size)}
		l.tenants[tenantID] = s
	}
	s.users++
	return s
}

// removeUser deletes the semaphore with its last user.
func (l *PerTenant) removeUser(tenantID uuid.UUID, s *tenantSemaphore) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(l.tenants, tenantID)
	}
}
