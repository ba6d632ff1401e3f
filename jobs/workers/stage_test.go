package workers

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"
)

// However many stages a tenant has, it leaves workers to others; what is one too
// many comes back later, and an error stays what it is.
func TestStagesOfATenant(t *testing.T) {
	t.Parallel()
	var s stages
	one, two, broken := uuid.New(), uuid.New(), errors.New("broken")
	release := make(chan struct{})
	var working, ended sync.WaitGroup
	begin := func(tenantID uuid.UUID, stages int) {
		for range stages {
			working.Add(1)
			ended.Go(func() {
				_ = s.work(tenantID, func() error { working.Done(); <-release; return nil })
			})
		}
		working.Wait()
	}
	nothing := func() error { return nil }
	begin(one, stagesOfAnyone)
	var snooze *river.JobSnoozeError
	require.ErrorAs(t, s.work(one, nothing), &snooze)
	require.ErrorIs(t, s.work(two, func() error { return broken }), broken)
	begin(two, stagesOfTenantMax)
	require.ErrorAs(t, s.work(two, nothing), &snooze)
	require.NoError(t, s.work(uuid.New(), nothing))
	close(release)
	ended.Wait()
	require.NoError(t, s.work(one, nothing))
	require.Zero(t, s.all)
	require.Empty(t, s.working, "what has ended is still counted")
}
