package execution

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// callerTimeMax is for how long others make way for a caller: who waits for
	// longer waits for what the execution calls.
	callerTimeMax = 20 * time.Millisecond
	// latelyTime is for how long after the last caller another is expected.
	latelyTime = time.Second
)

// Callers are those who wait for an execution in this process right now. What
// nobody waits for lets them go first: a call needs a millisecond of processor time,
// most of it in a process of the database, and that would lie in the kernel's queue
// behind whatever keeps the processors busy.
type Callers struct {
	clock   func() time.Time
	mu      sync.Mutex
	waiting []*caller // in the order in which they came
	latest  time.Time // when the last one came
	rude    time.Time // until when nobody is let go first
}

type caller struct {
	came time.Time
	gone chan struct{} // closed when it waits no more
}

// NewCallers returns those of a process that nobody has called yet.
func NewCallers(clock func() time.Time) *Callers { return &Callers{clock: clock} }

// come says that a caller waits from now on, until it leaves.
func (c *Callers) come() *caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = c.clock()
	one := &caller{came: c.latest, gone: make(chan struct{})}
	c.waiting = append(c.waiting, one)
	return one
}

func (c *Callers) leave(one *caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.waiting, one)
	c.waiting = slices.Delete(c.waiting, i, i+1)
	close(one.gone)
}

// Lately reports whether a caller came within the last second, so that the next
// is to be expected.
func (c *Callers) Lately() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock().Sub(c.latest) < latelyTime
}

// newest is the caller who came last, and for how long others make way for it: not
// at all if nobody waits, it has been there for long, or it is the turn of the work.
func (c *Callers) newest() (one *caller, timeLeft time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return nil, 0
	}
	now := c.clock()
	if now.Before(c.rude) {
		return nil, 0
	}
	one = c.waiting[len(c.waiting)-1]
	return one, min(callerTimeMax-now.Sub(one.came), callerTimeMax)
}

// LetGoFirst waits until no caller is left who came within the last 20 ms, but no
// longer than that and only until ctx ends. Then nobody is let go first for as long
// as that took, so that work goes on however many callers there are. It costs little
// where there are none.
func (c *Callers) LetGoFirst(ctx context.Context) {
	one, timeLeft := c.newest()
	if timeLeft <= 0 {
		return
	}
	began := c.clock()
	ctx, cancel := context.WithTimeout(ctx, callerTimeMax)
	defer cancel()
	for timeLeft > 0 && ctx.Err() == nil {
		select {
		case <-one.gone:
		case <-time.After(timeLeft):
		case <-ctx.Done():
		}
		one, timeLeft = c.newest()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ended := c.clock()
	c.rude = ended.Add(ended.Sub(began))
}
