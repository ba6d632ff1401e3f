package execution

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tranche/internal/fault"
)

// writer stands for the database: it holds the first write back until it is let
// go, and refuses whatever contains an odd one out.
type writer struct {
	mu     sync.Mutex
	writes [][]int
	begun  chan struct{}
	goOn   chan struct{}
	refuse int
	away   error
}

func (w *writer) write(_ context.Context, items []int) ([]int, error) {
	w.mu.Lock()
	w.writes = append(w.writes, slices.Clone(items))
	first := len(w.writes) == 1
	w.mu.Unlock()
	if first {
		close(w.begun)
		<-w.goOn
		return items, nil
	}
	if w.away != nil {
		return nil, w.away
	}
	if slices.Contains(items, w.refuse) {
		return nil, errors.New("a bad one")
	}
	return items, nil
}

// queueBehind has items queue up behind a write of 0 that is under way, and
// returns the error of each.
func queueBehind(t *testing.T, w *writer, items ...int) map[int]error {
	t.Helper()
	w.begun, w.goOn = make(chan struct{}), make(chan struct{})
	g := &coalescer[int, int]{write: w.write, bytes: func(n int) int { return n << 20 }}
	failures := map[int]error{}
	var mu sync.Mutex
	var callers errgroup.Group
	call := func(item int) {
		callers.Go(func() error {
			result, err := g.do(t.Context(), item)
			mu.Lock()
			defer mu.Unlock()
			if failures[item] = err; err == nil && result != item {
				return errors.New("another's result")
			}
			return nil
		})
	}
	call(0)
	<-w.begun
	for i, item := range items {
		call(item)
		require.Eventually(t, func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.queue) == i+1
		}, 10*time.Second, time.Millisecond)
	}
	close(w.goOn)
	require.NoError(t, callers.Wait())
	return failures
}

func TestCoalescerSharesWrites(t *testing.T) {
	t.Parallel()
	w := &writer{refuse: -1}
	for item, err := range queueBehind(t, w, 1, 2) {
		require.NoError(t, err, item)
	}
	require.Equal(t, [][]int{{0}, {1, 2}}, w.writes)

	w = &writer{refuse: -1}
	queueBehind(t, w, 1, 2, 3, 9)
	require.Equal(t, [][]int{{0}, {1, 2}, {3}, {9}}, w.writes, "no more than 4 MB together, and never none")
}

// Small items do not stand behind large ones, nor large ones behind small ones.
func TestLanes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l lanes[int, int]
		l.set(func(n int) int { return n << 10 }, 0, func(_ context.Context, items []int) ([]int, error) {
			time.Sleep(time.Duration(items[0]) * time.Millisecond)
			return items, nil
		})
		const small, large = 256, 257
		var callers errgroup.Group
		for range 20 {
			callers.Go(func() error { _, err := l.do(t.Context(), large); return err })
		}
		synctest.Wait()
		begin := time.Now()
		_, err := l.do(t.Context(), small)
		require.NoError(t, err)
		require.Equal(t, small*time.Millisecond, time.Since(begin))
		require.NoError(t, callers.Wait())
	})
}

func TestCoalescerBadOneFailsAlone(t *testing.T) {
	t.Parallel()
	w := &writer{refuse: 2}
	failures := queueBehind(t, w, 1, 2, -3)
	require.ErrorContains(t, failures[2], "a bad one")
	delete(failures, 2)
	for item, err := range failures {
		require.NoError(t, err, item)
	}
	require.Equal(t, [][]int{{0}, {1, 2, -3}, {1}, {2}, {-3}}, w.writes)
}

func TestCoalescerAllFailWithTheDatabase(t *testing.T) {
	t.Parallel()
	w := &writer{away: fault.New(fault.Unavailable, "away")}
	failures := queueBehind(t, w, 1, 2)
	require.NoError(t, failures[0])
	require.ErrorIs(t, failures[1], fault.Unavailable)
	require.ErrorIs(t, failures[2], fault.Unavailable)
	require.Len(t, w.writes, 2, "not tried one by one")
}

// Whoever waits and goes away leaves the item behind: it is written.
func TestCoalescerWritesForThoseWhoLeft(t *testing.T) {
	t.Parallel()
	w := &writer{refuse: -1, begun: make(chan struct{}), goOn: make(chan struct{})}
	g := &coalescer[int, int]{write: w.write}
	first := make(chan error, 1)
	go func() {
		_, err := g.do(t.Context(), 1)
		first <- err
	}()
	<-w.begun
	ctx, leave := context.WithCancel(t.Context())
	leave()
	_, err := g.do(ctx, 2)
	require.ErrorIs(t, err, context.Canceled)
	close(w.goOn)
	require.NoError(t, <-first)
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.writes) == 2
	}, 10*time.Second, time.Millisecond)
	require.Equal(t, [][]int{{1}, {2}}, w.writes)
}

// After a write that several shared, more is waited for; one that is alone goes
// at once.
func TestCoalescerLingers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var writes []int
		g := &coalescer[int, int]{linger: time.Second, write: func(_ context.Context, items []int) ([]int, error) {
			writes = append(writes, len(items))
			time.Sleep(time.Millisecond) // others come meanwhile
			return items, nil
		}}
		begin := time.Now()
		var callers errgroup.Group
		for range 4 {
			callers.Go(func() error {
				_, err := g.do(t.Context(), 1)
				return err
			})
		}
		require.NoError(t, callers.Wait())
		require.Equal(t, []int{1, 3}, writes)
		require.Equal(t, 2*time.Millisecond, time.Since(begin))
		for range 2 {
			callers.Go(func() error {
				time.Sleep(time.Millisecond)
				_, err := g.do(t.Context(), 1)
				return err
			})
		}
		require.NoError(t, callers.Wait())
		require.Equal(t, []int{1, 3, 2}, writes)
	})
}

// A write that panics fails for the bad one alone, whoever writes it, and takes nobody
// else with it, nor what comes after.
func TestCoalescerSurvivesAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &coalescer[int, int]{write: func(_ context.Context, items []int) ([]int, error) {
			time.Sleep(time.Millisecond) // others come meanwhile
			if slices.Contains(items, 1) {
				panic("a bad one")
			}
			return items, nil
		}}
		for _, items := range [][]int{{1, 2, 3}, {2, 1, 3}, {2, 3, 4}} { // the first writes, the others are written beside it
			var callers sync.WaitGroup
			for _, item := range items {
				callers.Go(func() {
					result, err := g.do(t.Context(), item)
					if item == 1 {
						require.ErrorIs(t, err, fault.ErrPanic)
						return
					}
					require.NoError(t, err)
					require.Equal(t, item, result)
				})
				synctest.Wait()
			}
			callers.Wait()
		}
	})
}

// What is written may be megabytes, and is not held by what comes after it.
func TestCoalescerLetsGoOfWhatItWrites(t *testing.T) {
	t.Parallel()
	g := &coalescer[int, int]{bytes: func(int) int { return sharedBytesMax }}
	queue := []*call[int, int]{{item: 1}, {item: 2}}
	g.queue = queue
	require.Equal(t, 1, g.take()[0].item)
	require.Nil(t, queue[0])
	require.Equal(t, 2, g.take()[0].item)
	require.Nil(t, g.queue)
}
