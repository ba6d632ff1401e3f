package threads

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// threadsOf returns threads in whose bubble time passes as it is slept.
func threadsOf(t *testing.T, most int) *Threads {
	t.Helper()
	before := runtime.GOMAXPROCS(0)
	made := New(most, true)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	synctest.Wait()
	return made
}

func requireThreads(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	require.Equal(t, n, runtime.GOMAXPROCS(0))
}

func TestOneThreadWhileOneThingIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 7
		th := threadsOf(t, most)
		defer th.Leave()
		requireThreads(t, most) // to start
		time.Sleep(aloneTime)
		requireThreads(t, 1)

		one := th.Do(One)
		requireThreads(t, 1)
		two := th.Do(One)
		requireThreads(t, most)
		two()
		time.Sleep(aloneTime - 1)
		requireThreads(t, most) // another may come yet
		time.Sleep(aloneTime)
		requireThreads(t, 1)
		one()

		for range 5 { // again and again, for short
			one, two := th.Do(One), th.Do(One)
			one()
			two()
			time.Sleep(aloneTime * 3 / 4)
			requireThreads(t, most)
		}
		time.Sleep(2 * aloneTime)
		requireThreads(t, 1)
	})
}

func TestAllThreadsForAsLongAsManyThingsAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 7
		th := threadsOf(t, most)
		defer th.Leave()
		time.Sleep(2 * aloneTime)
		requireThreads(t, 1)
		done := th.Do(Many)
		for range 3 {
			requireThreads(t, most)
			time.Sleep(2 * aloneTime)
		}
		done()
		time.Sleep(2 * aloneTime)
		requireThreads(t, 1)
		require.Zero(t, th.things.Load())
	})
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	var none *Threads
	none.Do(Many)()
}

func TestThreadsAreAsBeforeInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 7
		before := runtime.GOMAXPROCS(0)
		th := threadsOf(t, most)
		time.Sleep(2 * aloneTime)
		requireThreads(t, 1)
		th.Leave()
		requireThreads(t, before)
	})
}
