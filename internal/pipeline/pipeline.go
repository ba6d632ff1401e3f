// Package pipeline processes a sequence of values concurrently and keeps their order. It
// must not know what the values are.
package pipeline

import (
	"context"

	"golang.org/x/sync/errgroup"

	"tranche/internal/fault"
)

// Ordered calls work for each value that source yields, and passes the results to sink in
// the order of the source. While sink handles one result, at most so many others are being
// worked on or wait for it; then the source waits. The first error, also of ctx, ends the
// pipeline.
func Ordered[In, Out any](
	ctx context.Context,
	concurrency int,
	source func(yield func(In) error) error,
	work func(context.Context, In) (Out, error),
	sink func(Out) error,
) error {
	group, ctx := errgroup.WithContext(ctx)
	results := make(chan chan Out, concurrency)
	goSafely(group, func() error {
		defer close(results)
		return source(func(in In) error {
			result := make(chan Out, 1)
			select {
			case results <- result:
			case <-ctx.Done():
				return ctx.Err()
			}
			goSafely(group, func() error {
				out, err := work(ctx, in)
				if err == nil {
					result <- out
				}
				return err
			})
			return nil
		})
	})
	goSafely(group, func() error {
		for result := range results {
			select {
			case out := <-result:
				if err := sink(out); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return group.Wait()
}

// goSafely is group.Go for functions whose panics are errors.
func goSafely(group *errgroup.Group, do func() error) {
	group.Go(func() error { return fault.Safely(do) })
}
