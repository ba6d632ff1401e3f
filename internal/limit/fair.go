package limit

import (
	"context"
	"slices"
	"sort"
	"sync"

	"github.com/google/uuid"
)

// servedMax bounds how many tenants and batches Fair remembers. A forgotten one counts
// as new.
const servedMax = 10_000

// Fair is a semaphore with fair scheduling. A free slot goes to the tenant that was served
// longest ago, then to that tenant's batch that was served longest ago, then to the batch's
// requests in the order of their tickets. A small batch so waits for one request of each
// other batch, however many requests the others have queued. It is safe for concurrent use.
type Fair struct {
	heldPerFree int

	mu   sync.Mutex
	free int
	held map[uuid.UUID]int // slots by tenant
	// order has the waiting tenants, and each tenant has its waiting batches, the one
	// served longest ago first. The next request is at the front.
	order   []*tenantQueue
	tenants map[uuid.UUID]*tenantQueue
	batches map[uuid.UUID]*batchQueue
	// served has, for each tenant and batch, the number of grants up to its latest one.
	// A new tenant or batch starts at the current number of grants.
	served  map[uuid.UUID]int
	grants  int
	tickets Ticket
}

// Request asks Fair for slots.
type Request struct {
	TenantID, BatchID uuid.UUID
	// Slots is how many slots the request needs at once; 0 is 1. A tenant that holds none
	// may be granted fewer.
	Slots int
	// Ticket orders the requests of a batch. A zero Ticket puts the request last.
	Ticket Ticket
}

// Ticket is a position among the requests of a batch: lower tickets are served first.
// A caller with several requests keeps its position if it uses one ticket for all of them.
type Ticket int

// Front is the ticket of requests that are served before all others of their batch.
const Front Ticket = -1

type tenantQueue struct {
	tenantID uuid.UUID
	served   int
	batches  []*batchQueue
}

type batchQueue struct {
	*tenantQueue
	batchID uuid.UUID
	served  int
	waiting []*waiter
}

// waiter is a request that is queued or has its slots.
type waiter struct {
	Request
	granted chan struct{} // closed when it has its slots
}

// NewFair returns a semaphore with so many slots. A tenant holds at most heldPerFree times
// as many slots as are free (dynamic threshold), so that however many tenants keep their
// slots for long, another tenant still finds some; 0 is no such bound.
func NewFair(slots, heldPerFree int) *Fair {
	return &Fair{
		free: slots, heldPerFree: heldPerFree, held: map[uuid.UUID]int{}, served: map[uuid.UUID]int{},
		tenants: map[uuid.UUID]*tenantQueue{}, batches: map[uuid.UUID]*batchQueue{},
	}
}

// Ticket returns a ticket behind all earlier ones.
func (f *Fair) Ticket() Ticket {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tickets++
	return f.tickets
}

// Acquire waits for the slots of a request. The caller must call release when it no longer
// needs them; a second call does nothing. The error is ctx's.
func (f *Fair) Acquire(ctx context.Context, r Request) (release func(), err error) {
	w := f.add(r)
	select {
	case <-w.granted:
		return sync.OnceFunc(func() { f.release(w) }), nil
	case <-ctx.Done():
		if !f.withdraw(w) {
			f.release(w) // it was granted meanwhile
		}
		return nil, ctx.Err()
	}
}

// add queues a request.
func (f *Fair) add(r Request) *waiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.Slots = max(r.Slots, 1)
	if r.Ticket == 0 {
		f.tickets++
		r.Ticket = f.tickets
	}
	w := &waiter{Request: r, granted: make(chan struct{})}
	if len(f.batches) == 0 || len(f.served) >= servedMax {
		clear(f.served)
	}
	for _, id := range []uuid.UUID{r.TenantID, r.BatchID} {
		if _, isKnown := f.served[id]; !isKnown {
			f.served[id] = f.grants
		}
	}
	f.queueOf(&r).add(w)
	f.grant()
	return w
}

// queueOf returns the queue of a request's batch. It adds the batch and its tenant to the
// waiting ones.
func (f *Fair) queueOf(r *Request) *batchQueue {
	b := f.batches[r.BatchID]
	if b != nil {
		return b
	}
	t := f.tenants[r.TenantID]
	if t == nil {
		t = &tenantQueue{tenantID: r.TenantID, served: f.served[r.TenantID]}
		f.tenants[r.TenantID] = t
		at := sort.Search(len(f.order), func(i int) bool { return f.order[i].served > t.served })
		f.order = slices.Insert(f.order, at, t)
	}
	b = &batchQueue{tenantQueue: t, batchID: r.BatchID, served: f.served[r.BatchID]}
	f.batches[r.BatchID] = b
	at := sort.Search(len(t.batches), func(i int) bool { return t.batches[i].served > b.served })
	t.batches = slices.Insert(t.batches, at, b)
	return b
}

func (b *batchQueue) add(w *waiter) {
	at := len(b.waiting)
	for at > 0 && b.waiting[at-1].Ticket > w.Ticket {
		at--
	}
	b.waiting = slices.Insert(b.waiting, at, w)
}

// release returns the slots of a waiter.
func (f *Fair) release(w *waiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free += w.Slots
	if f.held[w.TenantID] -= w.Slots; f.held[w.TenantID] == 0 {
		delete(f.held, w.TenantID)
	}
	f.grant()
}

// withdraw removes a waiter that has no slots yet; it returns false if it has some.
func (f *Fair) withdraw(w *waiter) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.batches[w.BatchID]
	if b == nil {
		return false
	}
	at := slices.Index(b.waiting, w)
	if at < 0 {
		return false
	}
	f.remove(b, at)
	f.grant() // a request behind it may need fewer slots
	return true
}

// remove takes a waiter out of its queue, and removes empty queues.
func (f *Fair) remove(b *batchQueue, at int) {
	b.waiting = slices.Delete(b.waiting, at, at+1)
	if len(b.waiting) > 0 {
		return
	}
	delete(f.batches, b.batchID)
	if b.batches = without(b.batches, b); len(b.batches) == 0 {
		delete(f.tenants, b.tenantID)
		f.order = without(f.order, b.tenantQueue)
	}
}

func without[T comparable](list []T, element T) []T {
	at := slices.Index(list, element)
	return slices.Delete(list, at, at+1)
}

// grant gives free slots to waiters. The caller holds the lock.
func (f *Fair) grant() {
	for b := f.next(); b != nil; b = f.next() {
		w := b.waiting[0]
		w.Slots = min(w.Slots, f.grantable(b.tenantID))
		f.free -= w.Slots
		f.held[b.tenantID] += w.Slots
		f.grants++
		f.served[b.tenantID], f.served[b.batchID] = f.grants, f.grants
		b.served, b.tenantQueue.served = f.grants, f.grants
		b.batches = append(without(b.batches, b), b)
		f.order = append(without(f.order, b.tenantQueue), b.tenantQueue)
		f.remove(b, 0)
		close(w.granted)
	}
}

// grantable returns how many more slots a tenant may get: afterwards it holds at most
// heldPerFree times the slots that are still free. A tenant that holds none may get one if
// any is free.
func (f *Fair) grantable(tenantID uuid.UUID) int {
	held := f.held[tenantID]
	switch {
	case f.heldPerFree == 0:
		return f.free
	case held == 0:
		return min(f.free, max(1, f.heldPerFree*f.free/(f.heldPerFree+1)))
	default:
		return max(0, (f.heldPerFree*f.free-held)/(f.heldPerFree+1))
	}
}

// next returns the batch whose first request is granted next, or nil. A request for more
// slots than the tenant may get lets other requests go first, unless the tenant holds no
// slots: then it gets those that there are.
func (f *Fair) next() *batchQueue {
	if f.free == 0 {
		return nil
	}
	for _, t := range f.order {
		grantable, holds := f.grantable(t.tenantID), f.held[t.tenantID] > 0
		if grantable == 0 {
			continue
		}
		for _, b := range t.batches {
			if !holds || grantable >= b.waiting[0].Slots {
				return b
			}
		}
	}
	return nil
}
