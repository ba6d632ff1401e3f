package runner

import (
	"bytes"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/queries"
)

// The ids of a chunk's items are UUIDv7 with the chunk's time, ascend with the items, and
// differ from those of other chunks.
func TestItemIDs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		chunk, other := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
		a := rapid.Int32Range(0, 1<<12-2).Draw(t, "a")
		b := rapid.Int32Range(a+1, 1<<12-1).Draw(t, "b")
		first, second := itemID(chunk, a), itemID(chunk, b)
		require.Equal(t, first, itemID(chunk, a), "the same every time")
		require.Negative(t, bytes.Compare(first[:], second[:]))
		require.NotEqual(t, itemID(other, b), second)
		for _, id := range []uuid.UUID{first, second} {
			require.Equal(t, uuid.Version(7), id.Version())
			require.Equal(t, uuid.RFC4122, id.Variant())
			require.Equal(t, queries.CreatedAt(chunk), queries.CreatedAt(id))
		}
	})
}
