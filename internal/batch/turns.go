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

// turns gives places to work that keeps a processor busy. Of those who wait, a
// place goes to the tenant that was served longest ago, of its batches to the
// one served longest ago, and there to who came first. So batches advance
// together: a small one waits for one turn of each of the others, not for what
// they have enqueued.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting []*turn // in the order in which they came
	// served says of a tenant or batch the number of its last turn; of one that
	// came after that, the number there were when it came.
	served map[uuid.UUID]int
	number int // of turns that were given
}

type turn struct {
	tenantID, batchID uuid.UUID
	given             chan struct{} // closed when it has a place
}

func newTurns(places int) *turns { return &turns{free: places, served: map[uuid.UUID]int{}} }

// take waits for a place; leave is to be called when the work is done or rests.
func (t *turns) take(ctx context.Context, tenantID, batchID uuid.UUID) (leave func(), err error) {
	mine := &turn{tenantID: tenantID, batchID: batchID, given: make(chan struct{})}
	t.queue(mine)
	select {
	case <-mine.given:
		return sync.OnceFunc(t.leave), nil
	case <-ctx.Done():
		if !t.withdraw(mine) {
			t.leave() // it was given a place meanwhile
		}
		return nil, ctx.Err()
	}
}

func (t *turns) queue(mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 || len(t.served) >= servedMax {
		clear(t.served)
	}
	for _, id := range []uuid.UUID{mine.tenantID, mine.batchID} {
		if _, isKnown := t.served[id]; !isKnown {
			t.served[id] = t.number
		}
	}
	t.waiting = append(t.waiting, mine)
	t.give()
}

func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.give()
}

// withdraw takes back a turn that has not been given; false if it has.
func (t *turns) withdraw(mine *turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting, mine)
	if i < 0 {
		return false
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	return true
}

// give hands out the free places. The caller holds the lock.
func (t *turns) give() {
	for t.free > 0 && len(t.waiting) > 0 {
		next := slices.MinFunc(t.waiting, func(a, b *turn) int {
			return cmp.Or(cmp.Compare(t.served[a.tenantID], t.served[b.tenantID]), cmp.Compare(t.served[a.batchID], t.served[b.batchID]))
		})
		i := slices.Index(t.waiting, next)
		t.waiting = slices.Delete(t.waiting, i, i+1)
		t.free--
		t.number++
		t.served[next.tenantID], t.served[next.batchID] = t.number, t.number
		close(next.given)
	}
}
