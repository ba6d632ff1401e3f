package batch

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Whatever number of items ends between two dispatches, every valid item is dispatched once,
// at most a window runs, and the processing ends once.
func TestDispatchInWindows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		valid := rapid.SliceOfN(rapid.Bool(), 1, 200).Draw(t, "valid")
		window := rapid.Int32Range(1, 50).Draw(t, "window")
		p := Progress{status: StatusProcessing, total: int32(len(valid)), chunksFedUntil: int32(len(valid))}
		validated := 0
		for _, ok := range valid {
			if ok {
				validated++
			} else {
				p.failed++
			}
		}
		dispatched := map[int32]bool{}
		running := int32(0)
		for ends := 0; ; {
			more, isOver := p.next(window)
			if isOver {
				ends++
				p.status = StatusPostProcessing
				require.Zero(t, running)
				require.Len(t, dispatched, validated)
			}
			if p.status == StatusPostProcessing {
				require.Equal(t, 1, ends)
				return
			}
			if more > 0 {
				var found int32
				for p.fedUntil < p.total && found < more {
					if valid[p.fedUntil] {
						require.False(t, dispatched[p.fedUntil])
						dispatched[p.fedUntil] = true
						found++
					}
					p.fedUntil++
				}
				p.enqueued += found
				running += found
				require.LessOrEqual(t, running, window)
				continue
			}
			require.Positive(t, running, "no item runs and none is dispatched")
			ended := rapid.Int32Range(1, running).Draw(t, "ended")
			running -= ended
			p.enqueued -= ended
			p.completed += ended
		}
	})
}

func TestOnlyProcessingBatchIsDispatched(t *testing.T) {
	t.Parallel()
	for _, status := range []Status{StatusPending, StatusPreProcessing, StatusPreProcessingComplete, StatusPostProcessing, StatusComplete, StatusPreProcessingFailed, StatusPaused, StatusCancelled} {
		more, isOver := Progress{status: status, total: 10}.next(5)
		require.Zero(t, more)
		require.False(t, isOver)
	}
}
