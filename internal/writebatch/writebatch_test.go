package writebatch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/fault"
)

// statements records the statements of a Writer whose items are numbers. It refuses
// statements with the number refused.
type statements struct {
	mu      sync.Mutex
	items   [][]int
	refused int
	err     error // of all statements but the first
}

var errRefused = errors.New("refused")

func (s *statements) write(_ context.Context, _ string, items []int) ([]int, error) {
	time.Sleep(time.Millisecond) // in a synctest bubble, so that items queue behind the first
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items = append(s.items, slices.Clone(items))
	switch {
	case len(s.items) > 1 && s.err != nil:
		return nil, s.err
	case s.refused != 0 && slices.Contains(items, s.refused):
		return nil, errRefused
	}
	return items, nil
}

// writeBehind writes items while the statement of item 0 runs. It returns the error of each.
func writeBehind(t *testing.T, w *Writer[string, int, int], items ...int) map[int]error {
	t.Helper()
	failures := map[int]error{}
	var mu sync.Mutex
	var callers sync.WaitGroup
	for _, item := range append([]int{0}, items...) {
		callers.Go(func() {
			result, err := w.Write(t.Context(), "key", item)
			mu.Lock()
			defer mu.Unlock()
			if failures[item] = err; err == nil {
				require.Equal(t, item, result)
			}
		})
		synctest.Wait()
	}
	callers.Wait()
	return failures
}

func TestItemsShareStatements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s statements
		w := New(Config[string, int, int]{Write: s.write})
		for item, err := range writeBehind(t, w, 1, 2) {
			require.NoError(t, err, item)
		}
		require.Equal(t, [][]int{{0}, {1, 2}}, s.items)
	})
}

func TestStatementLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s statements
		w := New(Config[string, int, int]{Write: s.write, Size: func(n int) int { return n << 20 }})
		writeBehind(t, w, 1, 2, 3, 9)
		require.Equal(t, [][]int{{0}, {1, 2}, {3}, {9}}, s.items, "at most 4 MB, at least one item")
	})
	synctest.Test(t, func(t *testing.T) {
		var s statements
		w := New(Config[string, int, int]{Write: s.write})
		writeBehind(t, w, slices.Repeat([]int{1}, ItemsMax+1)...)
		require.Len(t, s.items, 3)
		require.Len(t, s.items[1], ItemsMax)
	})
}

func TestBadItemFailsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := statements{refused: 2}
		failures := writeBehind(t, New(Config[string, int, int]{Write: s.write}), 1, 2, 3)
		require.ErrorIs(t, failures[2], errRefused)
		delete(failures, 2)
		for item, err := range failures {
			require.NoError(t, err, item)
		}
		require.Equal(t, [][]int{{0}, {1, 2, 3}, {1}, {2}, {3}}, s.items)
	})
}

func TestUnavailableFailsAllItems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := statements{err: fault.New(fault.Unavailable, "away")}
		failures := writeBehind(t, New(Config[string, int, int]{Write: s.write}), 1, 2)
		require.NoError(t, failures[0])
		require.ErrorIs(t, failures[1], fault.Unavailable)
		require.ErrorIs(t, failures[2], fault.Unavailable)
		require.Len(t, s.items, 2, "the items are not tried one by one")
	})
}

func TestRetryWhileUnavailable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		attempts int // that fail
		patience time.Duration
		err      error
		tried    int
	}{
		"until the database is back": {3, time.Hour, nil, 4},
		"until no caller waits":      {99, 2*retryPause + time.Millisecond, context.DeadlineExceeded, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tried := 0
				w := New(Config[string, int, int]{Retry: true, Write: func(context.Context, string, []int) ([]int, error) {
					if tried++; tried <= c.attempts {
						return nil, fault.New(fault.Unavailable, "away")
					}
					return nil, nil
				}})
				ctx, cancel := context.WithTimeout(t.Context(), c.patience)
				defer cancel()
				_, err := w.Write(ctx, "key", 1)
				require.ErrorIs(t, err, c.err)
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, c.tried, tried)
			})
		})
	}
}

func TestCancelledCallersItemIsWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s statements
		w := New(Config[string, int, int]{Write: s.write})
		go func() { _, _ = w.Write(t.Context(), "key", 1) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := w.Write(ctx, "key", 2)
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, [][]int{{1}, {2}}, s.items)
	})
}

func TestLinger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s statements
		w := New(Config[string, int, int]{Write: s.write, Linger: time.Second})
		begin := time.Now()
		writeBehind(t, w, 1, 2)
		require.Equal(t, 2*time.Millisecond, time.Since(begin), "items that come alone or while a statement runs do not wait")
		writeBehind(t, w, 3)
		require.Equal(t, [][]int{{0}, {1, 2}, {0, 3}}, s.items)
		require.Equal(t, 3*time.Millisecond+time.Second, time.Since(begin))
		time.Sleep(time.Minute)
	})
}

// A queue with slow items must not delay the items of other keys.
func TestKeysDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := New(Config[bool, int, int]{Write: func(_ context.Context, isLarge bool, items []int) ([]int, error) {
			if isLarge {
				time.Sleep(time.Second)
			}
			return items, nil
		}})
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() { _, _ = w.Write(t.Context(), true, 1) })
		}
		synctest.Wait()
		begin := time.Now()
		_, err := w.Write(t.Context(), false, 1)
		require.NoError(t, err)
		require.Zero(t, time.Since(begin))
		callers.Wait()
		synctest.Wait()
		require.Empty(t, w.queues, "empty queues are deleted")
	})
}

// A panic fails the bad item alone, and later items are written.
func TestPanicFailsItsItem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := New(Config[string, int, int]{Write: func(_ context.Context, _ string, items []int) ([]int, error) {
			time.Sleep(time.Millisecond)
			if slices.Contains(items, 1) {
				panic("bad item")
			}
			return items, nil
		}})
		for _, items := range [][]int{{1, 2, 3}, {2, 1, 3}, {2, 3, 4}} {
			for item, err := range writeBehind(t, w, items...) {
				if item == 1 {
					require.ErrorIs(t, err, fault.ErrPanic)
				} else {
					require.NoError(t, err)
				}
			}
		}
	})
}

// A queue that never empties must not keep the items that it has written.
func TestQueueReleasesWrittenItems(t *testing.T) {
	t.Parallel()
	w := New(Config[string, int, int]{Size: func(int) int { return BytesMax }})
	queue := []*entry[int, int]{{item: 1}, {item: 2}}
	w.queues["key"] = queue
	require.Equal(t, 1, w.take("key")[0].item)
	require.Nil(t, queue[0])
	require.Equal(t, 2, w.take("key")[0].item)
	require.Nil(t, w.queues["key"])
}
