package batch

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/queries"
)

const (
	// circuitFailures is after how many connections to a host that could not be
	// made, one after the other, its circuit opens.
	circuitFailures = 5
	// An open circuit lets one item try again after circuitWaitFirst, then after
	// twice as long, up to circuitWaitMost.
	circuitWaitFirst = 2 * time.Second
	circuitWaitMost  = time.Minute
	// circuitTryTime is about how long it takes until a connection is made or refused:
	// then the others ask what has become of the item that tries.
	circuitTryTime = 5 * time.Second
	// circuitPatience is for how long a batch waits: what is still not reached
	// then fails.
	circuitPatience = 6 * time.Hour
	// circuitsMax bounds what is remembered; what is forgotten is learned anew.
	circuitsMax = 10_000
)

// noticeUnreachable is the code of a batch's notice that items wait.
const noticeUnreachable = "TARGET_UNREACHABLE"

// DownError says that what an item calls can not be reached: it is to be tried
// again after the wait.
type DownError struct{ Wait time.Duration }

func (e *DownError) Error() string {
	return fmt.Sprintf("the target is down, trying again in %s", e.Wait)
}

type (
	// circuitKey is a host as one tenant calls it: tenants share no circuit, so
	// none learns of or holds up another.
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
	// waitingBatch is a batch whose items wait: for which host, and since when for any.
	waitingBatch struct {
		host  string
		since time.Time
	}
)

// circuits are those of this process. A host is down for a tenant while no
// connection to it can be made; its batches wait instead of burning through
// their items.
type circuits struct {
	mu       sync.Mutex
	circuits map[circuitKey]*circuit
	batches  map[uuid.UUID]waitingBatch
}

// admit returns zero if an item of the batch may begin, else how long it is to
// wait. While a circuit is open one item is admitted each time its wait is over.
func (c *circuits) admit(tenantID, batchID uuid.UUID, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting, ok := c.batches[batchID]
	if !ok {
		return 0
	}
	open := c.circuits[circuitKey{tenantID, waiting.host}]
	if open == nil || open.failures < circuitFailures {
		delete(c.batches, batchID)
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

// isOver reports whether a batch has waited for as long as it may.
func (c *circuits) isOver(batchID uuid.UUID, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting, ok := c.batches[batchID]
	return ok && waiting.isOver(now)
}

// report notes how a connection went and reports whether the circuit is open.
func (c *circuits) report(key circuitKey, connected bool, now time.Time) (isOpen bool) {
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
	isTry := open.isTried || !now.Before(open.nextTry) // else of an item that began before
	open.isTried = false
	if open.failures >= circuitFailures && isTry {
		open.wait = min(max(2*open.wait, circuitWaitFirst), circuitWaitMost)
		open.nextTry = now.Add(open.wait)
	}
	return open.failures >= circuitFailures
}

// hold makes the batch's items wait for a host.
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

// watch observes the connections of one item.
func (c *circuits) watch(tenantID uuid.UUID, clock func() time.Time) *watch {
	return &watch{circuits: c, tenantID: tenantID, clock: clock, unreached: map[string]bool{}}
}

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

// down returns a host that the item did not reach in the end while its circuit
// was open; empty for none. Others may have reached it since.
func (w *watch) down() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for host, isOpen := range w.unreached {
		if isOpen {
			return host
		}
	}
	return ""
}

// putOff lets go of an item that failed because a host is down, instead of
// ending it: what it completed is kept, the rest runs again when the host is
// reached. Its attempt stays the same, for nothing outside has seen it. An item of
// a chunk that is not recorded and completed nothing waits there.
func (s *Service) putOff(ctx context.Context, batchID uuid.UUID, plan *workflow.Plan, it *chunkItem, f *execution.Finished, host string) (execution.Holding, error) {
	wait, isNew := s.circuits.hold(circuitKey{f.TenantID, host}, batchID, s.Clock())
	if isNew {
		if err := s.notice(ctx, f.TenantID, batchID, host); err != nil {
			return execution.Held, err
		}
	}
	isUnrecorded := it != nil && !it.isRecorded
	if isUnrecorded && f.Outcome.TasksCompleted == 0 {
		return execution.Held, &DownError{Wait: wait}
	}
	text, err := s.undone(ctx, plan, f)
	if err == nil && isUnrecorded {
		err = it.keep(ctx, f, text)
	}
	if err != nil {
		return execution.Held, err
	}
	rows, err := s.q.BatchItemPostpone(ctx, s.Pool, queries.BatchItemPostponeParams{
		TenantID: f.TenantID, BatchID: batchID, ID: f.ID, LeaseToken: f.LeaseToken, State: text,
	})
	if err != nil {
		return execution.Held, postgres.Translate(fmt.Errorf("put off execution %s: %w", f.ID, err))
	}
	if rows == 0 {
		return execution.HeldElsewhere, nil
	}
	return execution.Held, &DownError{Wait: wait}
}

// undone is the state of an item that ended, with what it did not complete to be
// done again.
func (s *Service) undone(ctx context.Context, plan *workflow.Plan, f *execution.Finished) ([]byte, error) {
	plan, state, err := s.Executions.Stored(ctx, f.TenantID, f.ID, plan, f.State)
	if err != nil {
		return nil, err
	}
	attempt := state.Attempt
	if _, _, err := engine.Reset(plan, state, nil); err != nil {
		return nil, err
	}
	state.Attempt = attempt
	text, err := state.JSON()
	if err != nil {
		return nil, fmt.Errorf("write the state of execution %s: %w", f.ID, err)
	}
	return text, nil
}

// notice tells in the record of the batch that its items wait for a host.
func (s *Service) notice(ctx context.Context, tenantID, batchID uuid.UUID, host string) error {
	text, err := json.Marshal(workflow.Notice{
		Code: noticeUnreachable, Level: workflow.LevelWarning, Source: host, CreatedAt: s.Clock(),
		Message: "no connection could be made; items wait and are tried again",
	})
	if err != nil {
		return err
	}
	err = s.q.BatchNoticeAdd(ctx, s.Pool, queries.BatchNoticeAddParams{
		TenantID: tenantID, ID: batchID, Notice: text, Code: noticeUnreachable, Source: host,
	})
	if err != nil {
		return postgres.Translate(fmt.Errorf("add a notice to batch %s: %w", batchID, err))
	}
	return nil
}
