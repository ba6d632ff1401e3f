package execution

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// shown is for how long a worker lets callers go first.
func shown(ctx context.Context, c *Courtesy) time.Duration {
	began := time.Now()
	c.Show(ctx)
	return time.Since(began)
}

func TestCourtesyLetsCallersGoFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		callers := NewCallers(time.Now)
		c := callers.Courtesy()
		require.Zero(t, shown(t.Context(), c), "there is nobody")
		for i := range 2 {
			callers.come()
			time.AfterFunc(time.Duration(i+2)*time.Millisecond, callers.leave)
		}
		require.Equal(t, 3*time.Millisecond, shown(t.Context(), c), "until both have gone")
		require.Zero(t, shown(t.Context(), c))

		callers.come()
		defer callers.leave()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.Equal(t, time.Millisecond, shown(ctx, callers.Courtesy()), "until the work is to end")
	})
}

// Work goes on however many callers there are, and however long they wait.
func TestCourtesyIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		callers := NewCallers(time.Now)
		c := callers.Courtesy()
		callers.come()
		time.Sleep(5 * time.Millisecond)
		require.Equal(t, callerTimeMax-5*time.Millisecond, shown(t.Context(), c), "one who waits for what is called")
		time.Sleep(time.Minute)
		require.Zero(t, shown(t.Context(), c), "nobody has come since")
		callers.leave()

		callers.come()
		time.AfterFunc(4*time.Millisecond, callers.leave)
		require.Equal(t, 4*time.Millisecond, shown(t.Context(), c))
		callers.come()
		defer callers.leave()
		require.Zero(t, shown(t.Context(), c), "it is the turn of the work")
		time.Sleep(4 * time.Millisecond)
		require.Equal(t, callerTimeMax-4*time.Millisecond, shown(t.Context(), c))
	})
}

func TestCallersCameLately(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		callers := NewCallers(time.Now)
		require.False(t, callers.Lately())
		callers.come()
		callers.leave()
		require.True(t, callers.Lately())
		time.Sleep(latelyTime)
		require.False(t, callers.Lately())
	})
}
