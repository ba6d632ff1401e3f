package batch

import (
	"context"

	"golang.org/x/sync/errgroup"

	"tranche/internal/fault"
)

// inOrder does work on each value that source yields, on several of them at a time, and
// gives the results to sink in the order of the source. The source waits while as many
// results as ahead says wait for sink. The first error ends all of it, and so does the end
// of ctx.
func inOrder[In, Out any](
	ctx context.Context,
	ahead int,
	source func(yield func(In) error) error,
	work func(context.Context, In) (Out, error),
	sink func(Out) error,
) error {
	group, ctx := errgroup.WithContext(ctx)
	results := make(chan chan Out, ahead) // of what is being worked on
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

// goSafely is group.Go; a panic is an error.
func goSafely(group *errgroup.Group, do func() error) {
	group.Go(func() error { return fault.Safely(do) })
}
