package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/execution"
	"tranche/internal/fault"
)

// Whatever number of items ends between two looks at the progress, every valid
// item is fed once, never more than a window runs, and the end comes once.
func TestFeedingInWindows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		valid := rapid.SliceOfN(rapid.Bool(), 1, 200).Draw(t, "valid")
		window := rapid.Int32Range(1, 50).Draw(t, "window")
		p := progress{status: StatusProcessing, total: int32(len(valid)), chunksFedUntil: int32(len(valid))}
		validated := 0
		for _, ok := range valid {
			if ok {
				validated++
			} else {
				p.failed++
			}
		}
		fed := map[int32]bool{}
		running := int32(0)
		for ends := 0; ; {
			more, isOver := p.next(window)
			if isOver {
				ends++
				p.status = StatusPostProcessing
				require.Zero(t, running)
				require.Len(t, fed, validated)
			}
			if p.status == StatusPostProcessing {
				require.Equal(t, 1, ends)
				return
			}
			if more > 0 {
				var found int32
				for p.fedUntil < p.total && found < more {
					if valid[p.fedUntil] {
						require.False(t, fed[p.fedUntil])
						fed[p.fedUntil] = true
						found++
					}
					p.fedUntil++
				}
				p.enqueued += found
				running += found
				require.LessOrEqual(t, running, window)
				continue
			}
			require.Positive(t, running, "nothing runs and nothing is fed")
			ended := rapid.Int32Range(1, running).Draw(t, "ended")
			running -= ended
			p.enqueued -= ended
			p.completed += ended
		}
	})
}

func TestOnlyAProcessingBatchIsFed(t *testing.T) {
	t.Parallel()
	for _, status := range []Status{StatusPending, StatusPreProcessing, StatusPreProcessingComplete, StatusPostProcessing, StatusComplete, StatusPreProcessingFailed, StatusPaused, StatusCancelled} {
		more, isOver := progress{status: status, total: 10}.next(5)
		require.Zero(t, more)
		require.False(t, isOver)
	}
}

// writes records what a gatherer writes.
type writes struct {
	mu     sync.Mutex
	groups [][]*ended
	fail   func(items []*ended) error
}

func (w *writes) write(_ context.Context, _, _ uuid.UUID, items []*ended) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fail(items); err != nil {
		return err
	}
	w.groups = append(w.groups, items)
	return nil
}

// addAll hands items over at the same time and returns what each was told.
func addAll(ctx context.Context, g *gatherer[*ended], items []*ended) []error {
	var group sync.WaitGroup
	errs := make([]error, len(items))
	batchID := uuid.New()
	for i, item := range items {
		group.Go(func() { errs[i] = g.add(ctx, uuid.Nil, batchID, item) })
	}
	group.Wait()
	time.Sleep(time.Second) // the writer ends when nothing has come for a while
	return errs
}

func newItems(n int) []*ended {
	items := make([]*ended, n)
	for i := range items {
		items[i] = &ended{Finished: &execution.Finished{}}
	}
	return items
}

// Items that are large together are written by several statements, each of what
// fits and at least one item.
func TestGatheredItemsFitAStatement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &writes{fail: func([]*ended) error { return nil }}
		items := newItems(9)
		for _, item := range items {
			item.State, item.ResultText = make([]byte, gatherBytesMax/4), make([]byte, 1)
		}
		items[8].State = make([]byte, 3*gatherBytesMax)
		for _, err := range addAll(t.Context(), newGatherer(w.write), items) {
			require.NoError(t, err)
		}
		written := 0
		for _, group := range w.groups {
			written += len(group)
			size := 0
			for _, item := range group {
				size += item.size()
			}
			require.True(t, size <= gatherBytesMax || len(group) == 1, "%d items of %d bytes", len(group), size)
		}
		require.Equal(t, len(items), written)
		require.LessOrEqual(t, len(w.groups), 5)
	})
}

func TestGatheredItemsAreWrittenTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &writes{fail: func([]*ended) error { return nil }}
		for _, err := range addAll(t.Context(), newGatherer(w.write), newItems(100)) {
			require.NoError(t, err)
		}
		require.Len(t, w.groups, 1)
		require.Len(t, w.groups[0], 100)
	})
}

func TestABadItemFailsAlone(t *testing.T) {
	t.Parallel()
	bad := errors.New("a bad row")
	for want, fail := range map[error]func() error{
		bad:            func() error { return bad },
		fault.ErrPanic: func() error { panic("a bad row") },
	} {
		synctest.Test(t, func(t *testing.T) {
			items := newItems(10)
			w := &writes{fail: func(group []*ended) error {
				if slices.Contains(group, items[3]) {
					return fail()
				}
				return nil
			}}
			for i, err := range addAll(t.Context(), newGatherer(w.write), items) {
				if i == 3 {
					require.ErrorIs(t, err, want)
				} else {
					require.NoError(t, err)
				}
			}
			require.Len(t, w.groups, 9)
		})
	}
}

func TestItemsOutliveADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		w := &writes{fail: func([]*ended) error {
			if tries++; tries <= 20 {
				return fault.New(fault.Unavailable, "the database is away")
			}
			return nil
		}}
		for _, err := range addAll(t.Context(), newGatherer(w.write), newItems(5)) {
			require.NoError(t, err)
		}
		require.Len(t, w.groups, 1)
	})
}

func TestNobodyWaitsForAWriteAfterTheJobWasStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &writes{fail: func([]*ended) error {
			cancel()
			return fault.New(fault.Unavailable, "the database is away")
		}}
		for _, err := range addAll(ctx, newGatherer(w.write), newItems(5)) {
			require.Error(t, err)
		}
		synctest.Wait()
		require.Empty(t, w.groups)
	})
}
