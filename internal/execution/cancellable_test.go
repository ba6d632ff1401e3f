package execution

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// A run that ends must not remove a later run of the same execution.
func TestCancelReachesLaterRun(t *testing.T) {
	t.Parallel()
	var runs cancellable
	id := uuid.New()
	_, removeEarlier := runs.add(t.Context(), id)
	later, removeLater := runs.add(t.Context(), id)
	removeEarlier()
	runs.cancel(id.String())
	require.True(t, isCancelled(later))
	removeLater()
	require.Empty(t, runs.ids())
}
