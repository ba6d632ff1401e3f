package execution

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Runs begin and end while Stop waits. None begins after the wait is over.
func TestNoRunBeginsAfterStop(t *testing.T) {
	t.Parallel()
	for range 1000 {
		var r running
		var now atomic.Int32
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				for r.begin() {
					now.Add(1)
					now.Add(-1)
					r.end()
				}
			})
		}
		<-r.wait()
		require.Zero(t, now.Load())
		callers.Wait()
		<-r.wait()
	}
}

func TestStopWaitsForAllRuns(t *testing.T) {
	t.Parallel()
	var r running
	let, done := make(chan struct{}), make(chan struct{})
	require.True(t, r.begin())
	none := r.wait()
	r.Go(func() { <-let })
	r.end()
	select {
	case <-none:
		t.Fatal("a run is left")
	default:
	}
	close(let)
	<-none
	require.False(t, r.begin())
	r.Go(func() { close(done) })
	<-done
}
