package ingest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/itemfile"
	"tranche/internal/workflow"
	"tranche/queries"
)

// A refused item does not end before its id's time.
func TestRefusedItemsEndAfterTheyBegan(t *testing.T) {
	t.Parallel()
	var chunk *queries.BatchItemsInsertParams
	c := &chunker{plan: &workflow.Plan{}, clock: time.Now, columns: itemfile.NewColumns(), emit: func(p *queries.BatchItemsInsertParams) error { chunk = p; return nil }}
	for range 3 {
		require.NoError(t, c.add(&checkedItem{refusal: `{}`}))
	}
	require.NoError(t, c.flush())
	require.Len(t, chunk.Ids, 3)
	for _, id := range chunk.Ids {
		require.False(t, chunk.CreatedAt.Before(queries.CreatedAt(id)))
	}
}
