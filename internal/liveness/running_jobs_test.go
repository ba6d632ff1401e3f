package liveness

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// River records the end of a job a moment after it. A long job must not count as lost in
// that moment.
func TestTrackedJobOutlivesItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &Process{}
		short, long := p.TrackJob(1), p.TrackJob(2)
		short()
		require.Equal(t, []int64{2}, p.jobs.ids())
		time.Sleep(lostAfter)
		long()
		time.Sleep(recordedAfter - 1)
		require.Equal(t, []int64{2}, p.jobs.ids())
		time.Sleep(time.Second)
		require.Empty(t, p.jobs.ids())
	})
}
