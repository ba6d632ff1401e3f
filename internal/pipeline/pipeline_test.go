package pipeline

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOrderedKeepsOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const values, concurrency = 100, 3
		var begun, ended, most atomic.Int32
		var got []int
		err := Ordered(t.Context(), concurrency, func(yield func(int) error) error {
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
		require.Greater(t, most.Load(), int32(1), "values are processed one by one")
		require.LessOrEqual(t, most.Load(), int32(concurrency+2), "the source must wait")
	})
}

func TestOrderedEndsWithFirstError(t *testing.T) {
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
			err := Ordered(ctx, 1, func(yield func(int) error) error {
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

func TestOrderedReturnsPanicsAsErrors(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"source", "work", "sink"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			fail := func(at string) {
				if at == where {
					panic("broken")
				}
			}
			err := Ordered(t.Context(), 1, func(yield func(int) error) error {
				fail("source")
				return yield(1)
			}, func(context.Context, int) (int, error) {
				fail("work")
				return 1, nil
			}, func(int) error {
				fail("sink")
				return nil
			})
			require.ErrorContains(t, err, "panic: broken")
		})
	}
}
