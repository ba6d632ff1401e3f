package batch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/workflow"
	"tranche/queries"
)

// An item that is refused has not ended before it was made.
func TestRefusedItemsEndAfterTheyBegan(t *testing.T) {
	t.Parallel()
	var chunk *queries.BatchItemsInsertParams
	c := &chunker{plan: &workflow.Plan{}, clock: time.Now, columns: newColumnSet(), emit: func(p *queries.BatchItemsInsertParams) error { chunk = p; return nil }}
	for range 3 {
		require.NoError(t, c.add(&checked{result: `{}`}))
		time.Sleep(2 * time.Millisecond)
	}
	require.NoError(t, c.flush())
	require.Len(t, chunk.Ids, 3)
	for _, id := range chunk.Ids {
		require.False(t, chunk.CreatedAt.Before(queries.CreatedAt(id)))
	}
}
