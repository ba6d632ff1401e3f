package runner

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/batch"
)

// An item that failed while a host was unavailable is postponed, even if other items have
// reached the host since. An item that reached it in the end is not.
func TestCircuitOfItem(t *testing.T) {
	t.Parallel()
	const host = "bureau.example:443"
	tenantID, clock := uuid.New(), func() time.Time { return time.Date(2026, 11, 21, 2, 9, 25, 0, time.UTC) }
	c := &circuits{}
	early, late, other := c.watch(tenantID, clock), c.watch(tenantID, clock), c.watch(tenantID, clock)
	for range circuitFailures - 1 {
		early.report(host, false)
	}
	require.Empty(t, early.unavailable(), "the circuit is not open yet")
	late.report(host, false)
	require.Equal(t, host, late.unavailable())
	stranger := c.watch(uuid.New(), clock)
	stranger.report(host, false)
	require.Empty(t, stranger.unavailable(), "tenants share no circuit")
	other.report(host, true)
	require.Equal(t, host, late.unavailable())
	require.Empty(t, other.unavailable())
	late.report(host, true)
	require.Empty(t, late.unavailable())
}

// While one item tries a host, the other items wait briefly. If the host is available again,
// they begin, else they wait for the next try.
func TestItemsFollowAdmittedOne(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 2, 9, 25, 0, time.UTC)
	c, batchID := &circuits{}, uuid.New()
	key := circuitKey{uuid.New(), "bureau.example:443"}
	batchKey := batch.Key{TenantID: key.tenantID, ID: batchID}
	for range circuitFailures {
		c.report(key, false, now)
	}
	c.hold(key, batchID, now)
	for wait := circuitWaitFirst; wait < circuitWaitMost; wait *= 2 { // tries that fail
		require.Equal(t, wait, c.admit(batchKey, now))
		now = now.Add(wait)
		require.Zero(t, c.admit(batchKey, now))
		require.LessOrEqual(t, c.admit(batchKey, now), circuitTryTime)
		now = now.Add(circuitTryTime / 2)
		c.report(key, false, now)
		c.hold(key, batchID, now)
	}
	wait := c.admit(batchKey, now)
	require.Equal(t, circuitWaitMost, wait)
	now = now.Add(wait)
	require.Zero(t, c.admit(batchKey, now))
	require.Equal(t, circuitTryTime, c.admit(batchKey, now))
	c.report(key, true, now)
	require.Zero(t, c.admit(batchKey, now))
}

// After its host was reached, a batch has its whole patience again, even if it was used up.
func TestPatienceBeginsAnew(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 2, 9, 25, 0, time.UTC)
	c, batchID := &circuits{}, uuid.New()
	key := circuitKey{uuid.New(), "bureau.example:443"}
	batchKey := batch.Key{TenantID: key.tenantID, ID: batchID}
	fail := func() {
		for range circuitFailures {
			c.report(key, false, now)
		}
		c.hold(key, batchID, now)
	}
	fail()
	require.Positive(t, c.admit(batchKey, now))
	now = now.Add(circuitPatience)
	require.Zero(t, c.admit(batchKey, now), "the items fail after so long")
	require.True(t, c.isPatienceOver(batchID, now))
	c.report(key, true, now)
	require.Zero(t, c.admit(batchKey, now))
	require.False(t, c.isPatienceOver(batchID, now))
	fail()
	require.Positive(t, c.admit(batchKey, now))
}
