package execution

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// A run that ends after its execution was taken again in the same process leaves
// the later run where a cancel finds it.
func TestCancelReachesTheLaterRun(t *testing.T) {
	t.Parallel()
	var runs held
	id := uuid.New()
	_, releaseEarlier := runs.add(t.Context(), id)
	later, releaseLater := runs.add(t.Context(), id)
	releaseEarlier()
	runs.interrupt(id.String())
	require.True(t, interrupted(later))
	releaseLater()
	require.Empty(t, runs.ids())
}
