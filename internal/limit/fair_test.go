package limit

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// queue queues a request without waiting for its slots.
func queue(f *Fair, tenant, batch byte, slots int) *waiter {
	return f.add(Request{TenantID: uuid.UUID{1, tenant}, BatchID: uuid.UUID{2, tenant, batch}, Slots: slots})
}

func (w *waiter) isGranted() bool {
	select {
	case <-w.granted:
		return true
	default:
		return false
	}
}

func TestFairOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ waiting, want []string }{
		"one batch":                     {[]string{"1a", "1a"}, []string{"1a", "1a"}},
		"batches of one tenant":         {[]string{"1a", "1a", "1a", "1b", "1b"}, []string{"1a", "1b", "1a", "1b", "1a"}},
		"small batch of another tenant": {[]string{"1a", "1a", "1a", "2a"}, []string{"1a", "2a", "1a", "1a"}},
		"many batches against one":      {[]string{"1a", "1b", "1c", "1d", "2a", "2a"}, []string{"1a", "2a", "1b", "2a", "1c", "1d"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := NewFair(1, 0)
			working := queue(f, '1', 'a', 1)
			queued := make([]*waiter, len(c.waiting))
			for i, request := range c.waiting {
				queued[i] = queue(f, request[0], request[1], 1)
			}
			var order []string
			for range queued {
				f.release(working)
				for i, w := range queued {
					if w != nil && w.isGranted() {
						order, working, queued[i] = append(order, c.waiting[i]), w, nil
					}
				}
			}
			require.Equal(t, c.want, order)
		})
	}
}

// While a tenant waits, each other tenant is served at most once; all slots are in use,
// and none is granted twice.
func TestFairProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const slots = 2
		f, waiting, working := NewFair(slots, 0), []*waiter{}, []*waiter{}
		since := map[uuid.UUID]map[uuid.UUID]int{} // by waiting tenant: how often the others were served
		check := func() {
			left := waiting[:0]
			for _, w := range waiting {
				if !w.isGranted() {
					left = append(left, w)
					continue
				}
				working = append(working, w)
				delete(since, w.TenantID)
				for _, others := range since {
					others[w.TenantID]++
					require.LessOrEqual(t, others[w.TenantID], 1)
				}
			}
			waiting = left
			for _, w := range waiting {
				if since[w.TenantID] == nil {
					since[w.TenantID] = map[uuid.UUID]int{}
				}
			}
			require.Len(t, working, min(slots, len(working)+len(waiting)))
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(working) > 0 && rapid.Bool().Draw(t, "release") {
				at := rapid.IntRange(0, len(working)-1).Draw(t, "which")
				f.release(working[at])
				working = slices.Delete(working, at, at+1)
			} else {
				waiting = append(waiting, queue(f, rapid.ByteRange(1, 3).Draw(t, "tenant"), rapid.ByteRange(1, 3).Draw(t, "batch"), 1))
			}
			check()
		}
	})
}

func TestFairTickets(t *testing.T) {
	t.Parallel()
	f := NewFair(1, 0)
	request := Request{TenantID: uuid.UUID{1}, BatchID: uuid.UUID{2}}
	withTicket := func(ticket Ticket) Request {
		return Request{TenantID: request.TenantID, BatchID: request.BatchID, Ticket: ticket}
	}
	working, ticket := f.add(request), f.Ticket()
	last := f.add(request)
	second, third := f.add(withTicket(ticket)), f.add(withTicket(ticket))
	first := f.add(withTicket(Front))
	for _, next := range []*waiter{first, second, third, last} {
		require.False(t, next.isGranted())
		f.release(working)
		require.True(t, next.isGranted())
		working = next
	}
}

func TestFairCancelledRequest(t *testing.T) {
	t.Parallel()
	f := NewFair(1, 0)
	newRequest := func() Request { return Request{TenantID: uuid.New(), BatchID: uuid.New()} }
	release, err := f.Acquire(t.Context(), newRequest())
	require.NoError(t, err)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.Acquire(cancelled, newRequest())
	require.ErrorIs(t, err, context.Canceled)
	release()
	if release, err := f.Acquire(cancelled, newRequest()); err == nil { // either outcome leaves the slot free
		release()
		release()
	}
	_, err = f.Acquire(t.Context(), newRequest())
	require.NoError(t, err)
	require.Zero(t, f.free)
	require.Len(t, f.held, 1)
}

// A request for several slots lets others go first until they are free. A tenant without
// slots gets those that there are.
func TestFairSeveralSlots(t *testing.T) {
	t.Parallel()
	f := NewFair(4, 0)
	first, second := queue(f, '1', 'a', 1), queue(f, '1', 'a', 1)
	heavy := queue(f, '1', 'a', 3)
	light := queue(f, '2', 'a', 1)
	require.False(t, heavy.isGranted(), "two of three slots are free")
	require.True(t, light.isGranted())
	f.release(first)
	require.False(t, heavy.isGranted())
	f.release(light)
	require.True(t, heavy.isGranted())
	f.release(second)
	less := queue(f, '2', 'a', 3)
	require.True(t, less.isGranted(), "a tenant without slots gets the free ones")
	require.Zero(t, f.free)
	f.release(heavy)
	f.release(less)
	require.Equal(t, 4, f.free)
	require.Empty(t, f.held)
}

func TestFairCancelledRequestUnblocksSmallerOnes(t *testing.T) {
	t.Parallel()
	f := NewFair(4, 0)
	queue(f, '1', 'a', 2)
	heavy, light := queue(f, '1', 'a', 3), queue(f, '1', 'a', 1)
	require.False(t, light.isGranted(), "the heavy request is first")
	require.True(t, f.withdraw(heavy))
	require.True(t, light.isGranted())
	require.False(t, heavy.isGranted())
	require.Equal(t, 1, f.free)
}

// Whatever the weight of requests that never end, another tenant gets a slot.
func TestFairThresholdWithHeavyRequests(t *testing.T) {
	t.Parallel()
	const slots, heldPerFree = 1000, 4
	for _, each := range []int{1, 4, 16, 33, 41, 60, 150, slots / (heldPerFree + 1)} {
		t.Run(strconv.Itoa(each), func(t *testing.T) {
			t.Parallel()
			f := NewFair(slots, heldPerFree)
			for tenant := byte('1'); tenant <= '4'; tenant++ {
				for i := range slots {
					queue(f, tenant, byte(i%2), each)
				}
			}
			require.True(t, queue(f, '5', 'a', 1).isGranted())
		})
	}
}

// However many tenants keep their slots, another tenant gets some. One tenant alone gets
// four fifths.
func TestFairThreshold(t *testing.T) {
	t.Parallel()
	f := NewFair(125, 4)
	fill := func(tenant byte) (held []*waiter) {
		for range 125 {
			if w := queue(f, tenant, 'a', 1); w.isGranted() {
				held = append(held, w)
			}
		}
		return held
	}
	first := fill('1')
	require.Len(t, first, 100)
	require.Len(t, fill('2'), 20)
	require.Len(t, fill('3'), 4)
	require.Len(t, fill('4'), 1)
	for _, w := range first[:10] {
		f.release(w)
	}
	require.NotEmpty(t, fill('5'))
}
