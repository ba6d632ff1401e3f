package execution

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// wait is for how long a worker lets callers go first.
func wait(ctx context.Context, c *Callers) time.Duration {
	began := time.Now()
	c.LetGoFirst(ctx)
	return time.Since(began)
}

// comeFor is a caller who waits for so long.
func comeFor(c *Callers, d time.Duration) {
	one := c.come()
	time.AfterFunc(d, func() { c.leave(one) })
}

func TestCallersGoFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewCallers(time.Now)
		require.Zero(t, wait(t.Context(), c), "there is nobody")
		comeFor(c, 3*time.Millisecond)
		comeFor(c, 2*time.Millisecond)
		require.Equal(t, 3*time.Millisecond, wait(t.Context(), c), "until both have gone")
		require.Zero(t, wait(t.Context(), c))
		time.Sleep(time.Minute)

		comeFor(c, 10*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.Equal(t, time.Millisecond, wait(ctx, c), "until the work is to end")
	})
}

// Who waits for what an execution calls holds nobody up, and does not make others
// hold work up for longer.
func TestLongCallersGoFirstForAMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewCallers(time.Now)
		long := c.come()
		defer c.leave(long)
		time.Sleep(5 * time.Millisecond)
		require.Equal(t, callerTimeMax-5*time.Millisecond, wait(t.Context(), c))
		time.Sleep(time.Minute)
		require.Zero(t, wait(t.Context(), c), "nobody has come since")
		comeFor(c, 2*time.Millisecond)
		require.Equal(t, 2*time.Millisecond, wait(t.Context(), c))
	})
}

// Work goes on for half of the time, however many callers there are.
func TestCallersGoFirstForHalfOfTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewCallers(time.Now)
		over := make(chan struct{})
		go func() { // one each millisecond, for a millisecond and a half
			for {
				select {
				case <-over:
					return
				case <-time.After(time.Millisecond):
					comeFor(c, 1500*time.Microsecond)
				}
			}
		}()
		time.Sleep(2 * time.Millisecond)
		began, waited, longest := time.Now(), time.Duration(0), time.Duration(0)
		for time.Since(began) < time.Second {
			w := wait(t.Context(), c)
			waited, longest = waited+w, max(longest, w)
			time.Sleep(100 * time.Microsecond) // of work
		}
		close(over)
		require.Equal(t, callerTimeMax, longest)
		require.InDelta(t, 0.5, waited.Seconds(), 0.05)
		time.Sleep(time.Second)
	})
}

func TestCallersCameLately(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewCallers(time.Now)
		require.False(t, c.Lately())
		c.leave(c.come())
		require.True(t, c.Lately())
		time.Sleep(latelyTime)
		require.False(t, c.Lately())
	})
}
