package runner

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"tranche/internal/batch"
)

const (
	// circuitFailures is after how many consecutive failed connections to a host its circuit
	// opens.
	circuitFailures = 5
	// An open circuit admits one item after circuitWaitFirst. After each failure, it waits
	// twice as long as before, up to circuitWaitMost.
	circuitWaitFirst = 2 * time.Second
	circuitWaitMost  = time.Minute
	// circuitTryTime is about how long it takes to make a connection or to be refused. After
	// it, the other items check the result of the admitted one.
	circuitTryTime = 5 * time.Second
	// circuitPatience is how long a batch waits for an unavailable host. Then its items fail.
	circuitPatience = 6 * time.Hour
	// circuitsMax bounds the circuits and batches in memory. If there are more, all are
	// forgotten and learned anew.
	circuitsMax = 10_000
)

// CircuitOpenError means that the target of an item is unavailable. The item is to be tried
// again after the wait.
type CircuitOpenError struct{ Wait time.Duration }

func (e *CircuitOpenError) Error() string {
	return fmt.Sprintf("the target is unavailable; the next try is in %s", e.Wait)
}

func isCircuitOpen(err error) bool {
	_, ok := errors.AsType[*CircuitOpenError](err)
	return ok
}

type (
	// circuitKey is a host for one tenant. Tenants share no circuit, so that none can observe
	// or delay another.
	circuitKey struct {
		tenantID uuid.UUID
		host     string
	}
	circuit struct {
		failures int
		wait     time.Duration
		nextTry  time.Time
		isTried  bool // by an item that was admitted and has not reported
	}
	// waitingBatch is a batch whose items wait for a host. since is when they began to wait
	// for any host.
	waitingBatch struct {
		host  string
		since time.Time
	}
)

// circuits are the circuit breakers of this process. A circuit is open while no connection
// to its host can be made. Then batches of the tenant wait, and their items do not fail.
type circuits struct {
	mu       sync.Mutex
	circuits map[circuitKey]*circuit
	batches  map[uuid.UUID]waitingBatch
}

// admit returns zero if an item of the batch may begin, else how long it has to wait. An
// open circuit admits one item each time its wait is over.
func (c *circuits) admit(key batch.Key, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting, ok := c.batches[key.ID]
	if !ok {
		return 0
	}
	open := c.circuits[circuitKey{key.TenantID, waiting.host}]
	if open == nil || open.failures < circuitFailures {
		delete(c.batches, key.ID)
		return 0
	}
	if waiting.isOver(now) {
		return 0
	}
	wait := open.nextTry.Sub(now)
	switch {
	case wait > 0 && open.isTried:
		return min(wait, circuitTryTime)
	case wait > 0:
		return wait
	}
	open.nextTry, open.isTried = now.Add(open.wait), true
	return 0
}

func (w waitingBatch) isOver(now time.Time) bool { return now.Sub(w.since) >= circuitPatience }

// isPatienceOver reports whether a batch has waited for as long as it may.
func (c *circuits) isPatienceOver(batchID uuid.UUID, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting, ok := c.batches[batchID]
	return ok && waiting.isOver(now)
}

// report takes the result of a connection, and returns whether the circuit is open.
func (c *circuits) report(key circuitKey, connected bool, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if connected {
		delete(c.circuits, key)
		return false
	}
	if c.circuits == nil || len(c.circuits) >= circuitsMax {
		c.circuits = map[circuitKey]*circuit{}
	}
	open := c.circuits[key]
	if open == nil {
		open = &circuit{}
		c.circuits[key] = open
	}
	open.failures++
	isTry := open.isTried || !now.Before(open.nextTry) // else of an item that began earlier
	open.isTried = false
	if open.failures >= circuitFailures && isTry {
		open.wait = min(max(2*open.wait, circuitWaitFirst), circuitWaitMost)
		open.nextTry = now.Add(open.wait)
	}
	return open.failures >= circuitFailures
}

// hold makes the items of a batch wait for a host. It returns how long they wait, and
// whether they did not wait for this host before.
func (c *circuits) hold(key circuitKey, batchID uuid.UUID, now time.Time) (wait time.Duration, isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.batches == nil || len(c.batches) >= circuitsMax {
		c.batches = map[uuid.UUID]waitingBatch{}
	}
	before, isWaiting := c.batches[batchID]
	isNew = before.host != key.host
	if !isWaiting {
		before.since = now
	}
	c.batches[batchID] = waitingBatch{key.host, before.since}
	wait = circuitWaitFirst
	if open := c.circuits[key]; open != nil {
		wait = max(open.nextTry.Sub(now), time.Second)
	}
	return wait, isNew
}

// watch returns an observer for the connections of one item.
func (c *circuits) watch(tenantID uuid.UUID, clock func() time.Time) *watch {
	return &watch{circuits: c, tenantID: tenantID, clock: clock, unreached: map[string]bool{}}
}

// watch is the connections of one item.
type watch struct {
	circuits  *circuits
	tenantID  uuid.UUID
	clock     func() time.Time
	mu        sync.Mutex
	unreached map[string]bool // by host: its circuit was open when the last connection failed
}

func (w *watch) report(host string, connected bool) {
	isOpen := w.circuits.report(circuitKey{w.tenantID, host}, connected, w.clock())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unreached[host] = isOpen
}

// unavailable returns a host whose last connection failed while its circuit was open; empty
// if there is none. Other items may have reached the host since.
func (w *watch) unavailable() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for host, isOpen := range w.unreached {
		if isOpen {
			return host
		}
	}
	return ""
}
