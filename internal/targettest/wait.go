package targettest

import (
	"maps"
	"slices"
	"time"
)

// Wait waits until the target has received n calls in all and returns the recorded
// ones in the order of their arrival.
func (t *Target) Wait(n int) []Call {
	t.tb.Helper()
	t.until("calls", n, func() int { return t.received })
	return t.Calls()
}

// WaitMatch waits until n recorded calls match and returns them in the order of their
// arrival.
func (t *Target) WaitMatch(n int, match func(Call) bool) (matching []Call) {
	t.tb.Helper()
	t.until("matching calls", n, func() int {
		matching = slices.DeleteFunc(slices.Clone(t.calls), func(c Call) bool { return !match(c) })
		return len(matching)
	})
	return matching
}

// WaitKeys waits until calls with n different idempotency keys are recorded.
func (t *Target) WaitKeys(n int) {
	t.tb.Helper()
	t.until("idempotency keys", n, func() int { return len(t.keys) })
}

// WaitAbandoned waits until n callers have closed their connections before the end of
// the answer.
func (t *Target) WaitAbandoned(n int) {
	t.tb.Helper()
	t.until("abandoned calls", n, func() int { return t.abandoned })
}

// WaitInFlight waits until n calls are being answered or held at the same time.
func (t *Target) WaitInFlight(n int) {
	t.tb.Helper()
	t.until("calls in flight", n, func() int { return t.inFlight })
}

// WaitIdle waits until no call is being answered.
func (t *Target) WaitIdle() {
	t.tb.Helper()
	t.until("idle", 0, func() int { return -t.inFlight })
}

// until waits for a count, which is read with the lock held.
func (t *Target) until(name string, n int, count func() int) {
	t.tb.Helper()
	timeout := time.NewTimer(waitMax)
	defer timeout.Stop()
	for {
		t.mu.Lock()
		got, changed := count(), t.changed
		t.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			t.tb.Fatalf("targettest: waited %v for %d %s, got %d", waitMax, n, name, got)
		case <-t.tb.Context().Done():
			t.tb.Fatalf("targettest: the test ended while it waited for %d %s, got %d", n, name, got)
		}
	}
}

// Calls returns the recorded calls in the order of their arrival.
func (t *Target) Calls() []Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.calls)
}

// Take returns the recorded calls and forgets them, and with them their keys and the
// maximum of InFlight.
func (t *Target) Take() []Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls := t.calls
	t.calls, t.keys, t.inFlightMax = nil, map[string]int{}, t.inFlight
	return calls
}

// Last returns the latest recorded call. The test fails if there is none.
func (t *Target) Last() Call {
	t.tb.Helper()
	calls := t.Calls()
	if len(calls) == 0 {
		t.tb.Fatal("targettest: no call is recorded")
	}
	return calls[len(calls)-1]
}

// Count returns the number of recorded calls.
func (t *Target) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.calls)
}

// Keys returns the idempotency keys of the recorded calls in the order of arrival.
func (t *Target) Keys() []string {
	calls := t.Calls()
	keys := make([]string, len(calls))
	for i, c := range calls {
		keys[i] = c.Key
	}
	return keys
}

// CallsByKey returns the number of recorded calls of each idempotency key.
func (t *Target) CallsByKey() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.keys)
}

// InFlight returns how many calls are being answered or held now, and how many were
// at the same time at most.
func (t *Target) InFlight() (now, most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inFlight, t.inFlightMax
}

// Connections returns how many connections the target has accepted.
func (t *Target) Connections() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.connections
}
