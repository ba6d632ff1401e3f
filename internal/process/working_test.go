package process

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The end of a job is written a moment after it; one that took long would be given
// back in that moment.
func TestJobsAreWorkedOnUntilTheirEndIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &Process{}
		short, long := p.WorksOn(1), p.WorksOn(2)
		short()
		require.Equal(t, []int64{2}, p.working.ids())
		time.Sleep(lostAfter)
		long()
		time.Sleep(toldAfter - 1)
		require.Equal(t, []int64{2}, p.working.ids())
		time.Sleep(time.Second)
		require.Empty(t, p.working.ids())
	})
}
