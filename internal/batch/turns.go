package batch

import (
	"context"
	"slices"
	"sort"
	"sync"

	"github.com/google/uuid"
)

// servedMax bounds how many tenants and batches turns remember; one that is forgotten
// comes as if it were new.
const servedMax = 10_000

// turns gives places to what many batches want to do at a time. Of those who
// wait, a place goes to the tenant that was served longest ago, of its batches to
// the one served longest ago, and there to who came first. So batches advance
// together: a small one waits for one turn of each of the others, not for what
// they have enqueued.
type turns struct {
	mu   sync.Mutex
	free int
	// greed is how many times of what is free a tenant may hold; 0 is any number.
	// However many tenants hold places for long, one more finds some.
	greed int
	held  map[uuid.UUID]int // places by tenant
	// Those who wait are in order, so that however many there are, whose turn it is
	// is found at once: tenants, and batches of a tenant, each by who was served
	// longest ago.
	order   []*line
	lines   map[uuid.UUID]*line  // by tenant
	batches map[uuid.UUID]*queue // by batch
	// served is the number of the last turn of a tenant or batch or, where it has had
	// none, how many turns had been given when it came.
	served map[uuid.UUID]int
	number int // of turns that were given
	comers int // how many have come until now
}

// line is the batches of a tenant that wait.
type line struct {
	tenantID uuid.UUID
	served   int
	queues   []*queue
}

// queue is what waits of a batch, in the order in which who waits came.
type queue struct {
	*line
	batchID uuid.UUID
	served  int
	waiting []*turn
}

type turn struct {
	tenantID, batchID uuid.UUID
	came              int           // as come says, or beforeAll
	places            int           // that it asks for, and then has
	given             chan struct{} // closed when it has them
}

func newTurns(places, greed int) *turns {
	return &turns{
		free: places, greed: greed, held: map[uuid.UUID]int{}, served: map[uuid.UUID]int{},
		lines: map[uuid.UUID]*line{}, batches: map[uuid.UUID]*queue{},
	}
}

// beforeAll is for turns that come before all others of their batch.
const beforeAll = 0

// come gives a number to one who will take several turns: all of them come before those
// of the same batch with a higher number (takeAs).
func (t *turns) come() (came int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.comers++
	return t.comers
}

// take waits for a place; leave is to be called when the work is done or only waits.
func (t *turns) take(ctx context.Context, tenantID, batchID uuid.UUID) (leave func(), err error) {
	return t.takeAs(ctx, t.come(), tenantID, batchID, 1)
}

// takeAs is take for one who has a number of come, and for several places at once.
func (t *turns) takeAs(ctx context.Context, came int, tenantID, batchID uuid.UUID, places int) (leave func(), err error) {
	mine := &turn{tenantID: tenantID, batchID: batchID, came: came, places: places, given: make(chan struct{})}
	t.add(mine)
	select {
	case <-mine.given:
		return sync.OnceFunc(func() { t.leave(mine) }), nil
	case <-ctx.Done():
		if !t.withdraw(mine) {
			t.leave(mine) // it was given a place meanwhile
		}
		return nil, ctx.Err()
	}
}

func (t *turns) add(mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.batches) == 0 || len(t.served) >= servedMax {
		clear(t.served)
	}
	for _, id := range []uuid.UUID{mine.tenantID, mine.batchID} {
		if _, isKnown := t.served[id]; !isKnown {
			t.served[id] = t.number
		}
	}
	t.queueOf(mine).add(mine)
	t.give()
}

// queueOf returns the queue of a turn's batch, which waits from now on if it does not
// yet.
func (t *turns) queueOf(mine *turn) *queue {
	q := t.batches[mine.batchID]
	if q != nil {
		return q
	}
	l := t.lines[mine.tenantID]
	if l == nil {
		l = &line{tenantID: mine.tenantID, served: t.served[mine.tenantID]}
		t.lines[mine.tenantID] = l
		at := sort.Search(len(t.order), func(i int) bool { return t.order[i].served > l.served })
		t.order = slices.Insert(t.order, at, l)
	}
	q = &queue{line: l, batchID: mine.batchID, served: t.served[mine.batchID]}
	t.batches[mine.batchID] = q
	at := sort.Search(len(l.queues), func(i int) bool { return l.queues[i].served > q.served })
	l.queues = slices.Insert(l.queues, at, q)
	return q
}

func (q *queue) add(mine *turn) {
	at := len(q.waiting)
	for at > 0 && q.waiting[at-1].came > mine.came {
		at--
	}
	q.waiting = slices.Insert(q.waiting, at, mine)
}

// leave gives back the places of a turn.
func (t *turns) leave(mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free += mine.places
	if t.held[mine.tenantID] -= mine.places; t.held[mine.tenantID] == 0 {
		delete(t.held, mine.tenantID)
	}
	t.give()
}

// withdraw takes back a turn that has not been given; false if it has.
func (t *turns) withdraw(mine *turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.batches[mine.batchID]
	if q == nil {
		return false
	}
	at := slices.Index(q.waiting, mine)
	if at < 0 {
		return false
	}
	t.remove(q, at)
	t.give() // those behind it may ask for less
	return true
}

// remove takes a turn out of its queue. A batch of which nothing waits any more, and
// a tenant of which no batch does, are forgotten.
func (t *turns) remove(q *queue, at int) {
	q.waiting = slices.Delete(q.waiting, at, at+1)
	if len(q.waiting) > 0 {
		return
	}
	delete(t.batches, q.batchID)
	if q.queues = without(q.queues, q); len(q.queues) == 0 {
		delete(t.lines, q.tenantID)
		t.order = without(t.order, q.line)
	}
}

func without[T comparable](all []T, one T) []T {
	at := slices.Index(all, one)
	return slices.Delete(all, at, at+1)
}

// give hands out places. The caller holds the lock.
func (t *turns) give() {
	for q := t.next(); q != nil; q = t.next() {
		mine := q.waiting[0]
		mine.places = min(mine.places, t.most(q.tenantID))
		t.free -= mine.places
		t.held[q.tenantID] += mine.places
		t.number++
		t.served[q.tenantID], t.served[q.batchID] = t.number, t.number
		q.served, q.line.served = t.number, t.number
		q.queues = append(without(q.queues, q), q) // nobody was served later
		t.order = append(without(t.order, q.line), q.line)
		t.remove(q, 0)
		close(mine.given)
	}
}

// most is how many more places a tenant may get: with them it holds at most greed
// times what is free then. One that holds none gets one, if there is any.
func (t *turns) most(tenantID uuid.UUID) int {
	held := t.held[tenantID]
	switch {
	case t.greed == 0:
		return t.free
	case held == 0:
		return min(t.free, max(1, t.greed*t.free/(t.greed+1)))
	default:
		return max(0, (t.greed*t.free-held)/(t.greed+1))
	}
}

// next is the batch that gets the next places; nil if none does now. Who takes more
// than are free lets others go first, unless nothing of its tenant runs: then it gets
// what there is.
func (t *turns) next() *queue {
	if t.free == 0 {
		return nil
	}
	for _, l := range t.order {
		most, holds := t.most(l.tenantID), t.held[l.tenantID] > 0
		if most == 0 {
			continue
		}
		for _, q := range l.queues {
			if !holds || most >= q.waiting[0].places {
				return q
			}
		}
	}
	return nil
}

// lookOut is called now and then by work that computes for long, so that requests are met.
// It wakes a thread of Go's that rests, which finds nothing to do and so waits for the
// network. While all threads compute, Go looks at the network every 10 ms only.
func lookOut() { go func() {}() }
