package schedule_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/schedule"
)

// A batch is fired once the newest that its own slot started has ended, in whatever
// way, and not while it is paused.
func TestBatchFiringIsSkippedWhileThePreviousBatchIsOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.replica(t, b.clock.now)
	workflow := b.publish(t)
	b.configure(t, s, workflow, single("* * * * *", `{"amount":1}`), schedule.Setting{
		Slot: schedule.Batch, Cron: "* * * * *", Batch: schedule.BatchContent{Items: []any{map[string]any{"amount": json.Number("1")}}},
	})
	minute := 0
	fired := func() (status schedule.Status) {
		minute++
		b.clock.set(noon.Add(time.Duration(minute) * time.Minute))
		fire(t, s, 2)
		for _, f := range b.firings(t, s, workflow)[:2] {
			if f.Slot == schedule.Batch {
				status = f.Status
			} else { // its run never ends
				require.Equal(t, minute == 1, f.Status == schedule.Started)
			}
		}
		return status
	}
	require.Equal(t, schedule.Started, fired())
	for _, tc := range []struct {
		is   string
		want schedule.Status
	}{
		{"pending", schedule.Skipped},
		{"pre_processing", schedule.Skipped},
		{"pre_processing_complete", schedule.Skipped},
		{"processing", schedule.Skipped},
		{"post_processing", schedule.Skipped},
		{"paused", schedule.Skipped},
		{"pre_processing_failed", schedule.Started},
		{"post_processing_failed", schedule.Started},
		{"complete", schedule.Started},
		{"cancelled", schedule.Started},
		{"processing", schedule.Skipped},
	} {
		pgtest.Exec(t, b.pool, `UPDATE execution_batches SET status = $1, paused_from = CASE $1 WHEN 'paused' THEN 'processing' END
			WHERE id = (SELECT max(id::text)::uuid FROM execution_batches)`, tc.is)
		require.Equal(t, tc.want, fired(), "after one that is %s", tc.is)
	}
}
