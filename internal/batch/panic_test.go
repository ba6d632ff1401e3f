package batch

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/execution"
	"tranche/internal/limit"
	"tranche/internal/workflow"
)

// A panic beside a job is the job's error, and gives back its place.
func TestPanicsAreErrors(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"source", "work", "sink"} {
		fail := func(at string) {
			if at == where {
				panic("broken")
			}
		}
		err := inOrder(t.Context(), 1, func(yield func(int) error) error {
			fail("source")
			return yield(1)
		}, func(context.Context, int) (int, error) {
			fail("work")
			return 1, nil
		}, func(int) error {
			fail("sink")
			return nil
		})
		require.ErrorContains(t, err, "panic: broken", where)
	}

	s := &Service{Config: Config{Clock: time.Now}, calling: limit.NewFair(1, 0)}
	for range 2 {
		r := &chunkRun{Service: s, plan: &workflow.Plan{}}
		r.start(r.place(t.Context(), r.came), func() (execution.Holding, error) { panic("broken") })
		r.end(t.Context())
		_, err := r.result()
		require.ErrorContains(t, err, "panic: broken")
	}
}
