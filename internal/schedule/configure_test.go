package schedule_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/audit"
	"tranche/internal/fault"
	"tranche/internal/pgtest"
	"tranche/internal/schedule"
)

func TestConfigureLeavesTheOtherSlot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.replica(t, b.clock.now)
	workflow := b.publish(t)
	batches := schedule.Setting{Slot: schedule.Batch, Cron: "0 0 1 * *", UTCDeltaHours: -12}
	b.configure(t, s, workflow, batches)
	configured := b.configure(t, s, workflow, single("0 0 * * *", `{"amount":1}`))
	require.Len(t, configured, 2)
	for _, c := range configured {
		if c.Slot == schedule.Batch {
			require.Equal(t, batches.Cron, c.Cron)
			require.Equal(t, time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC), c.NextRunAt)
		} else {
			require.Equal(t, time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC), c.NextRunAt)
		}
	}
	// A slot that is configured again is replaced.
	elsewhere := single("0 6 * * *", `{"amount":2}`)
	elsewhere.UTCDeltaHours = 2
	configured = b.configure(t, s, workflow, elsewhere)
	require.Len(t, configured, 2)
	i := slices.IndexFunc(configured, func(c schedule.Schedule) bool { return c.Slot == schedule.Single })
	require.Equal(t, 2, configured[i].UTCDeltaHours)
	require.Equal(t, time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC), configured[i].NextRunAt)

	// So is that of a test, whose runs are none any more.
	tests := b.publish(t)
	isTest := func() string {
		return pgtest.Text(t, b.pool, `SELECT is_test::text FROM schedules WHERE workflow_id = $1`, tests)
	}
	_, err := s.Configure(t.Context(), b.tenant, tests, true, []schedule.Setting{elsewhere})
	require.NoError(t, err)
	require.Equal(t, "true", isTest())
	b.configure(t, s, tests, elsewhere)
	require.Equal(t, "false", isTest())
	_, err = s.Delete(t.Context(), b.tenant, tests, false, []schedule.Slot{schedule.Single})
	require.NoError(t, err)

	deleted, err := s.Delete(t.Context(), b.tenant, workflow, false, []schedule.Slot{schedule.Batch, schedule.Single})
	require.NoError(t, err)
	require.Equal(t, []schedule.Slot{schedule.Single, schedule.Batch}, deleted)
	deleted, err = s.Delete(t.Context(), b.tenant, workflow, false, []schedule.Slot{schedule.Single})
	require.NoError(t, err)
	require.Empty(t, deleted)

	events, err := audit.Events(t.Context(), b.pool, b.tenant, time.Time{}, "schedule.", 100)
	require.NoError(t, err)
	var actions []audit.Action
	for _, event := range events {
		if event.Subject == tests.String() {
			continue
		}
		require.Equal(t, workflow.String(), event.Subject)
		actions = append(actions, audit.Action(event.Action))
	}
	require.Equal(t, []audit.Action{audit.ScheduleSet, audit.ScheduleSet, audit.ScheduleSet, audit.ScheduleDelete}, actions)
}

func TestConfigureRefusesInvalidSettings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.replica(t, b.clock.now)
	active, draft := b.publish(t), pgtest.Workflow(t, b.pool, b.tenant)
	fine := single("0 0 * * *", `{"amount":1}`)
	for name, want := range map[string]struct {
		tenant, workflow uuid.UUID
		setting          schedule.Setting
		kind             fault.Kind
		field            string
	}{
		"unknown":        {b.tenant, uuid.New(), fine, fault.NotFound, ""},
		"another's":      {pgtest.Tenant(t, b.pool).ID, active, fine, fault.NotFound, ""},
		"draft":          {b.tenant, draft.ID, fine, fault.Conflict, ""},
		"malformed cron": {b.tenant, active, single("@daily", `{"amount":1}`), fault.Invalid, "schedule.cron"},
		"never fires":    {b.tenant, active, single("0 0 30 2 *", `{"amount":1}`), fault.Unprocessable, "schedule.cron"},
		"wrong input":    {b.tenant, active, single("0 0 * * *", `{"amount":"1"}`), fault.Unprocessable, "schedule.input.amount"},
		"no input":       {b.tenant, active, schedule.Setting{Slot: schedule.Single, Cron: "0 0 * * *"}, fault.Unprocessable, "schedule.input.amount"},
		"unknown file": {b.tenant, active, schedule.Setting{
			Slot: schedule.Batch, Cron: "0 0 * * *", Batch: schedule.BatchContent{Files: []string{"x.csv"}},
		}, fault.NotFound, "scheduleBatch.attachmentFileNames[0]"},
	} {
		_, err := s.Configure(t.Context(), want.tenant, want.workflow, false, []schedule.Setting{want.setting})
		require.ErrorIs(t, err, want.kind, name)
		if want.field != "" {
			details := fault.From(err).Details
			require.Len(t, details, 1, name)
			require.Equal(t, want.field, details[0].Field, name)
		}
	}
	require.Equal(t, 0, pgtest.Count(t, b.pool, "schedules", ""))
}
