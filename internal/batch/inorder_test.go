package batch

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInOrderKeepsTheOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const values, ahead = 100, 3
		var begun, ended, most atomic.Int32
		var got []int
		err := inOrder(t.Context(), ahead, func(yield func(int) error) error {
			for i := range values {
				if err := yield(i); err != nil {
					return err
				}
			}
			return nil
		}, func(_ context.Context, i int) (int, error) {
			most.Store(max(most.Load(), begun.Add(1)-ended.Load()))
			time.Sleep(time.Duration(i*37%11) * time.Millisecond)
			return i * i, nil
		}, func(square int) error {
			ended.Add(1)
			got = append(got, square)
			return nil
		})
		require.NoError(t, err)
		require.Len(t, got, values)
		for i, square := range got {
			require.Equal(t, i*i, square)
		}
		require.Greater(t, most.Load(), int32(1), "nothing is done at the same time")
		require.LessOrEqual(t, most.Load(), int32(ahead+2), "the source does not wait")
	})
}

func TestInOrderEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, where := range []string{"source", "work", "sink", "context"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			fail := func(at string) error {
				switch {
				case at == where:
					return broken
				case where == "context":
					cancel(broken)
				}
				return nil
			}
			var taken []int
			err := inOrder(ctx, 1, func(yield func(int) error) error {
				for i := 0; ; i++ {
					if err := yield(i); err != nil {
						return err
					}
					if i == 10 {
						if err := fail("source"); err != nil {
							return err
						}
					}
				}
			}, func(_ context.Context, i int) (int, error) {
				if i == 10 {
					return i, fail("work")
				}
				return i, nil
			}, func(i int) error {
				taken = append(taken, i)
				if i == 5 {
					return fail("sink")
				}
				return nil
			})
			if where == "context" {
				require.ErrorIs(t, err, context.Canceled)
			} else {
				require.ErrorIs(t, err, broken)
			}
			for i, got := range taken {
				require.Equal(t, i, got)
			}
		})
	}
}
