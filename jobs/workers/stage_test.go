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
	for range stagesOfTenantMax {
		working.Add(1)
		ended.Go(func() {
			_ = s.work(one, func() error { working.Done(); <-release; return nil })
		})
	}
	working.Wait()
	var snooze *river.JobSnoozeError
	require.ErrorAs(t, s.work(one, func() error { return nil }), &snooze)
	require.ErrorIs(t, s.work(two, func() error { return broken }), broken)
	close(release)
	ended.Wait()
	require.NoError(t, s.work(one, func() error { return nil }))
	require.Empty(t, s.working, "what has ended is still counted")
}
