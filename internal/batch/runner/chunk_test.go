package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/execution"
	"tranche/internal/limit"
	"tranche/internal/workflow"
)

func TestPanicOfItemIsErrorOfJob(t *testing.T) {
	t.Parallel()
	r := &Runner{Config: Config{Clock: time.Now}, slots: limit.NewFair(1, 0)}
	for range 2 { // the first run releases its slot
		run := &chunkRun{r: r, plan: &workflow.Plan{}}
		release, ok := run.acquireSlots(t.Context(), run.ticket)
		require.True(t, ok)
		run.start(release, func() (execution.Holding, error) { panic("broken") })
		run.items.Wait()
		_, err := run.result()
		require.ErrorContains(t, err, "panic: broken")
	}
}

// A free slot goes to running items first, then to the chunk that began first.
func TestChunkSlotOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &Runner{Config: Config{Clock: time.Now}, slots: limit.NewFair(1, 0)}
		first := &chunkRun{r: r, ticket: r.slots.Ticket(), plan: &workflow.Plan{}}
		second := &chunkRun{r: r, ticket: r.slots.Ticket(), plan: &workflow.Plan{}}
		release, ok := second.acquireSlots(t.Context(), second.ticket)
		require.True(t, ok)
		var order []string
		for _, w := range []struct {
			name   string
			run    *chunkRun
			ticket limit.Ticket
		}{{"second", second, second.ticket}, {"first", first, first.ticket}, {"running", second, limit.Front}} {
			go func() {
				release, _ := w.run.acquireSlots(t.Context(), w.ticket)
				order = append(order, w.name)
				release()
			}()
			synctest.Wait()
		}
		release()
		synctest.Wait()
		require.Equal(t, []string{"running", "first", "second"}, order)
	})
}
