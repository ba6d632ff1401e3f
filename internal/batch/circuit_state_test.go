package batch

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// An item that failed while a host was down is put off, also where others have
// reached the host since; one that reached it in the end is not.
func TestCircuitOfItem(t *testing.T) {
	t.Parallel()
	const host = "bureau.example:443"
	tenantID, clock := uuid.New(), func() time.Time { return time.Date(2026, 11, 21, 2, 9, 25, 0, time.UTC) }
	c := &circuits{}
	early, late, other := c.watch(tenantID, clock), c.watch(tenantID, clock), c.watch(tenantID, clock)
	for range circuitFailures - 1 {
		early.report(host, false)
	}
	require.Empty(t, early.down(), "the circuit is not open yet")
	late.report(host, false)
	require.Equal(t, host, late.down())
	stranger := c.watch(uuid.New(), clock)
	stranger.report(host, false)
	require.Empty(t, stranger.down(), "tenants share no circuit")
	other.report(host, true)
	require.Equal(t, host, late.down())
	require.Empty(t, other.down())
	late.report(host, true)
	require.Empty(t, late.down())
}

// While one item tries whether a host is back the others wait shortly, and go on
// once it has got through; where it has not they wait for the next try.
func TestOthersFollowTheOneThatTries(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 2, 9, 25, 0, time.UTC)
	c, batchID := &circuits{}, uuid.New()
	key := circuitKey{uuid.New(), "bureau.example:443"}
	for range circuitFailures {
		c.report(key, false, now)
	}
	c.hold(key, batchID, now)
	for wait := circuitWaitFirst; wait < circuitWaitMost; wait *= 2 { // tries that fail
		require.Equal(t, wait, c.admit(key.tenantID, batchID, now))
		now = now.Add(wait)
		require.Zero(t, c.admit(key.tenantID, batchID, now))
		require.LessOrEqual(t, c.admit(key.tenantID, batchID, now), circuitTryTime)
		now = now.Add(circuitTryTime / 2)
		c.report(key, false, now)
		c.hold(key, batchID, now)
	}
	wait := c.admit(key.tenantID, batchID, now)
	require.Equal(t, circuitWaitMost, wait)
	now = now.Add(wait)
	require.Zero(t, c.admit(key.tenantID, batchID, now))
	require.Equal(t, circuitTryTime, c.admit(key.tenantID, batchID, now))
	c.report(key, true, now)
	require.Zero(t, c.admit(key.tenantID, batchID, now))
}

// A batch may wait for as long again once its host was reached, also where it had
// waited for as long as it may.
func TestPatienceBeginsAnew(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 2, 9, 25, 0, time.UTC)
	c, batchID := &circuits{}, uuid.New()
	key := circuitKey{uuid.New(), "bureau.example:443"}
	fail := func() {
		for range circuitFailures {
			c.report(key, false, now)
		}
		c.hold(key, batchID, now)
	}
	fail()
	require.Positive(t, c.admit(key.tenantID, batchID, now))
	now = now.Add(circuitPatience)
	require.Zero(t, c.admit(key.tenantID, batchID, now), "what is not reached for so long fails")
	require.True(t, c.isOver(batchID, now))
	c.report(key, true, now)
	require.Zero(t, c.admit(key.tenantID, batchID, now))
	require.False(t, c.isOver(batchID, now))
	fail()
	require.Positive(t, c.admit(key.tenantID, batchID, now))
}
