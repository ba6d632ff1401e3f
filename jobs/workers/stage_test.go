package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"tranche/internal/fault"
	"tranche/queries"
)

// recordingDB records the arguments of statements.
type recordingDB struct {
	queries.DBTX
	args *[]any
}

func (n recordingDB) Exec(_ context.Context, _ string, args ...any) (pgconn.CommandTag, error) {
	if n.args != nil {
		*n.args = append(*n.args, args...)
	}
	return pgconn.CommandTag{}, nil
}

// Thousands of stages above the limit are repeated one by one, with the lowest priority, which
// each gets once.
func TestStagesAboveLimit(t *testing.T) {
	t.Parallel()
	var args []any
	now := time.Now()
	s := stages{db: recordingDB{args: &args}, clock: func() time.Time { return now }, log: slog.New(slog.DiscardHandler)}
	tenant, nothing := uuid.New(), func() error { return nil }
	for range sharedStages {
		require.Zero(t, s.begin(tenant))
	}
	postponed := func(job *rivertype.JobRow) time.Duration {
		var snooze *river.JobSnoozeError
		require.ErrorAs(t, s.work(t.Context(), job, tenant, nothing, nil), &snooze)
		return snooze.Duration
	}
	for i := range 1000 {
		require.Equal(t, stageInterval+time.Duration(i)*stageSpacing, postponed(&rivertype.JobRow{ID: 7, Priority: 1}))
	}
	require.Len(t, args, 2000)
	require.Equal(t, []any{int16(priorityPostponed), int64(7)}, args[:2])
	for range 20_000 {
		require.LessOrEqual(t, postponed(&rivertype.JobRow{Priority: priorityPostponed}), stageWaitMax)
	}
	require.Len(t, args, 2000)
	now = now.Add(time.Hour)
	require.Equal(t, stageInterval, postponed(&rivertype.JobRow{Priority: priorityPostponed}))
	for range sharedStages {
		s.end(tenant)
	}
	require.Empty(t, s.working)
}

// A tenant leaves workers to others. Its stages above the limit are postponed, and errors are
// passed on.
func TestStagesOfTenant(t *testing.T) {
	t.Parallel()
	s := stages{db: recordingDB{}, clock: time.Now, log: slog.New(slog.DiscardHandler)}
	job := &rivertype.JobRow{}
	one, two, broken := uuid.New(), uuid.New(), errors.New("broken")
	release := make(chan struct{})
	var working, ended sync.WaitGroup
	begin := func(tenantID uuid.UUID, stages int) {
		for range stages {
			working.Add(1)
			ended.Go(func() {
				_ = s.work(t.Context(), job, tenantID, func() error { working.Done(); <-release; return nil }, nil)
			})
		}
		working.Wait()
	}
	nothing := func() error { return nil }
	begin(one, sharedStages)
	var snooze *river.JobSnoozeError
	require.ErrorAs(t, s.work(t.Context(), job, one, nothing, nil), &snooze)
	require.ErrorIs(t, s.work(t.Context(), job, two, func() error { return broken }, nil), broken)
	begin(two, tenantStagesMax)
	require.ErrorAs(t, s.work(t.Context(), job, two, nothing, nil), &snooze)
	require.NoError(t, s.work(t.Context(), job, uuid.New(), nothing, nil))
	close(release)
	ended.Wait()
	require.NoError(t, s.work(t.Context(), job, one, nothing, nil))
	require.Zero(t, s.all)
	require.Empty(t, s.working, "ended stages are still counted")
}

// A stage is postponed without an error of its job if the error is not its own.
func TestStagesArePostponedWithoutError(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	away := fault.Wrap(errors.New("no connection"), fault.Unavailable, "the database is unavailable")
	s := stages{log: slog.New(slog.DiscardHandler)}
	var snooze *river.JobSnoozeError
	for name, of := range map[string]struct {
		ctx         context.Context
		err         error
		isPostponed bool
	}{
		"the database is unavailable": {t.Context(), fmt.Errorf("read: %w", away), true},
		"the process stops":           {stopped, context.Canceled, true},
		"done as it stops":            {stopped, nil, false},
		"an error of its own":         {t.Context(), errors.New("broken"), false},
	} {
		err := s.work(of.ctx, &rivertype.JobRow{}, uuid.New(), func() error { return of.err }, nil)
		require.Equal(t, of.isPostponed, errors.As(err, &snooze), name)
		if !of.isPostponed {
			require.Equal(t, of.err, err, name)
		}
	}
}

// A stage fails after its fifth own error, unless its batch has left the stage.
func TestStagesFailAfterErrors(t *testing.T) {
	t.Parallel()
	s := stages{log: slog.New(slog.DiscardHandler)}
	broken := errors.New("broken")
	away := fault.Wrap(errors.New("no connection"), fault.Unavailable, "the database is unavailable")
	var cancelled *river.JobCancelError
	var snooze *river.JobSnoozeError
	for name, of := range map[string]struct {
		errors    int // before this attempt
		err       error
		hasFailed bool
		failErr   error
		want      any // the error of the job, or a type of it
	}{
		"the fourth error":                   {3, broken, true, nil, broken},
		"the fifth error":                    {4, broken, true, nil, &cancelled},
		"the database is unavailable":        {4, away, true, nil, &snooze},
		"batch has left the stage":           {4, broken, false, nil, broken},
		"database unavailable when it fails": {4, broken, false, away, &snooze},
	} {
		asked := false
		job := &rivertype.JobRow{Errors: make([]rivertype.AttemptError, of.errors)}
		err := s.work(t.Context(), job, uuid.New(), func() error { return of.err }, func() (bool, error) {
			asked = true
			return of.hasFailed, of.failErr
		})
		if want, ok := of.want.(error); ok {
			require.ErrorIs(t, err, want, name)
			require.False(t, errors.As(err, &cancelled), name)
		} else {
			require.ErrorAs(t, err, of.want, name)
		}
		require.Equal(t, of.errors >= stageAttemptsMax-1 && of.err == broken, asked, name) //nolint:errorlint // the very error
	}
}
