package batch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/limit"
	"tranche/internal/workflow"
)

// A free slot goes to items that have begun, then to the chunk that began first.
func TestChunkSlotOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Service{Config: Config{Clock: time.Now}, calling: limit.NewFair(1, 0)}
		first, second := &chunkRun{Service: s, came: s.calling.Ticket(), plan: &workflow.Plan{}}, &chunkRun{Service: s, came: s.calling.Ticket(), plan: &workflow.Plan{}}
		leave := second.place(t.Context(), second.came)
		var order []string
		for _, w := range []struct {
			name string
			run  *chunkRun
			came limit.Ticket
		}{{"second", second, second.came}, {"first", first, first.came}, {"begun", second, limit.Front}} {
			go func() {
				left := w.run.place(t.Context(), w.came)
				order = append(order, w.name)
				left()
			}()
			synctest.Wait()
		}
		leave()
		synctest.Wait()
		require.Equal(t, []string{"begun", "first", "second"}, order)
	})
}
