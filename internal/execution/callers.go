package execution

import (
	"context"
	"sync"
	"time"
)

const (
	// callerTimeMax is for how long others make way after a caller came: one who
	// still waits then waits for what the execution calls.
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
	waiting int
	latest  time.Time     // when the last one came
	gone    chan struct{} // closed when none is left
}

// NewCallers returns those of a process that nobody has called yet.
func NewCallers(clock func() time.Time) *Callers { return &Callers{clock: clock} }

// come says that a caller waits from now on, until leave.
func (c *Callers) come() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting++; c.waiting == 1 {
		c.gone = make(chan struct{})
	}
	c.latest = c.clock()
}

func (c *Callers) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting--; c.waiting == 0 {
		close(c.gone)
	}
}

// Lately reports whether a caller came within the last second, so that the next
// is to be expected.
func (c *Callers) Lately() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock().Sub(c.latest) < latelyTime
}

// letIn says what to wait for so that callers can go first, and how long at most;
// nil if there is none.
func (c *Callers) letIn() (gone <-chan struct{}, timeMax time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == 0 {
		return nil, 0
	}
	return c.gone, callerTimeMax - c.clock().Sub(c.latest)
}

// Courtesy is how one worker treats callers.
type Courtesy struct {
	callers *Callers
	rude    time.Time // until when it lets nobody go first
}

// Courtesy returns that of a worker which has let nobody go first yet.
func (c *Callers) Courtesy() *Courtesy { return &Courtesy{callers: c} }

// Show lets callers go first: it waits until none is left, the last has been there
// for 20 ms, or ctx ends. Then the worker works for as long as it waited, whoever
// comes, so that work goes on however many callers there are. It costs little where
// there are none.
func (c *Courtesy) Show(ctx context.Context) {
	gone, timeMax := c.callers.letIn()
	if gone == nil || timeMax <= 0 {
		return
	}
	began := c.callers.clock()
	if began.Before(c.rude) {
		return
	}
	timer := time.NewTimer(timeMax)
	defer timer.Stop()
	select {
	case <-gone:
	case <-timer.C:
	case <-ctx.Done():
	}
	ended := c.callers.clock()
	c.rude = ended.Add(ended.Sub(began))
}
