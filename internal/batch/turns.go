package batch

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/google/uuid"
)

// servedMax bounds what turns remember; who is forgotten comes as if new.
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
	greed  int
	held   map[uuid.UUID]int // places by tenant
	queues []*queue          // of the batches that wait, in the order in which they began to
	// served says of a tenant or batch the number of its last turn; of one that
	// came after that, the number there were when it came.
	served map[uuid.UUID]int
	number int // of turns that were given
	comers int // how many have come until now
}

// queue is what waits of a batch, in the order in which who waits came.
type queue struct {
	tenantID, batchID uuid.UUID
	waiting           []*turn
}

type turn struct {
	tenantID, batchID uuid.UUID
	came              int           // as come says, or beforeAll
	places            int           // that it asks for, and then has
	given             chan struct{} // closed when it has them
}

func newTurns(places, greed int) *turns {
	return &turns{free: places, greed: greed, held: map[uuid.UUID]int{}, served: map[uuid.UUID]int{}}
}

// beforeAll is for turns that come before all others of their batch.
const beforeAll = 0

// come says as which comer one that takes several turns does so: all of them come
// before those of its batch that came later.
func (t *turns) come() (came int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.comers++
	return t.comers
}

// take waits for a place; leave is to be called when the work is done or rests.
func (t *turns) take(ctx context.Context, tenantID, batchID uuid.UUID) (leave func(), err error) {
	return t.takeAs(ctx, t.come(), tenantID, batchID, 1)
}

// takeAs is take for one that came before, and for so many places at once.
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
	if len(t.queues) == 0 || len(t.served) >= servedMax {
		clear(t.served)
	}
	for _, id := range []uuid.UUID{mine.tenantID, mine.batchID} {
		if _, isKnown := t.served[id]; !isKnown {
			t.served[id] = t.number
		}
	}
	i := t.queueOf(mine)
	if i < 0 {
		i = len(t.queues)
		t.queues = append(t.queues, &queue{tenantID: mine.tenantID, batchID: mine.batchID})
	}
	t.queues[i].add(mine)
	t.give()
}

func (q *queue) add(mine *turn) {
	at := len(q.waiting)
	for at > 0 && q.waiting[at-1].came > mine.came {
		at--
	}
	q.waiting = slices.Insert(q.waiting, at, mine)
}

func (t *turns) queueOf(mine *turn) int {
	return slices.IndexFunc(t.queues, func(q *queue) bool { return q.batchID == mine.batchID })
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
	i := t.queueOf(mine)
	if i < 0 {
		return false
	}
	at := slices.Index(t.queues[i].waiting, mine)
	if at < 0 {
		return false
	}
	t.remove(t.queues[i], at)
	t.give() // those behind it may ask for less
	return true
}

func (t *turns) remove(q *queue, at int) {
	q.waiting = slices.Delete(q.waiting, at, at+1)
	if len(q.waiting) == 0 {
		t.queues = slices.DeleteFunc(t.queues, func(other *queue) bool { return other == q })
	}
}

// give hands out places. The caller holds the lock.
func (t *turns) give() {
	for q := t.next(); q != nil; q = t.next() {
		mine := q.waiting[0]
		t.remove(q, 0)
		mine.places = min(mine.places, t.most(q.tenantID))
		t.free -= mine.places
		t.held[q.tenantID] += mine.places
		t.number++
		t.served[q.tenantID], t.served[q.batchID] = t.number, t.number
		close(mine.given)
	}
}

// most is how many more places a tenant may get: with them it holds as many times of
// what is free then as greed says. One that holds none gets one, if there is any.
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
func (t *turns) next() (next *queue) {
	for _, q := range t.queues {
		most := t.most(q.tenantID)
		if most == 0 || t.held[q.tenantID] > 0 && most < q.waiting[0].places {
			continue
		}
		if next == nil || cmp.Or(cmp.Compare(t.served[q.tenantID], t.served[next.tenantID]), cmp.Compare(t.served[q.batchID], t.served[next.batchID])) < 0 {
			next = q
		}
	}
	return next
}

// lookOut has a thread that rests find nothing to do, and so wait for the network.
// A thread that computes does not; where the one that waited has got what to
// compute, Go looks at the network every 10 ms and requests wait for that.
func lookOut() { go func() {}() }
