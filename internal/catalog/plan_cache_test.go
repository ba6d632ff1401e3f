package catalog

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/workflow"
)

func TestPlanCacheIsBounded(t *testing.T) {
	t.Parallel()
	cache := newPlanCache(3 * planBytesFixed)
	tenant := uuid.New()
	put := func(version, bytes int) *Workflow {
		w := &Workflow{ID: uuid.New(), TenantID: tenant, Alias: "a", Version: version}
		w.Tasks = make([]byte, bytes)
		cache.put(w, &workflow.Plan{})
		return w
	}
	holds := func(w *Workflow) bool {
		_, _, byID := cache.byID(w.ID)
		_, _, byName := cache.byName(planName{tenant, "a", w.Version})
		require.Equal(t, byID, byName)
		return byID
	}
	one, two, three := put(1, 0), put(2, 0), put(3, 0)
	require.True(t, holds(one) && holds(two) && holds(three))
	require.True(t, holds(one)) // the last used
	four := put(4, 0)
	require.False(t, holds(two), "the one that was used longest ago went")
	require.True(t, holds(one) && holds(three) && holds(four))

	large := put(5, 10*planBytesFixed)
	require.True(t, holds(large), "even one that is too large is kept while it is the last used")
	require.False(t, holds(one) || holds(three) || holds(four))
	put(6, 0)
	require.False(t, holds(large))

	cache.put(one, &workflow.Plan{})
	cache.put(one, &workflow.Plan{})
	cache.remove(one.ID)
	cache.remove(one.ID)
	require.False(t, holds(one))
	require.Equal(t, planBytesFixed, cache.bytes)
	require.Equal(t, 1, cache.used.Len())
	require.Len(t, cache.ids, 1)
	require.Len(t, cache.names, 1)
}
