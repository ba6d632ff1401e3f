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

// noted is a database that notes what it is told.
type noted struct {
	queries.DBTX
	told *[]any
}

func (n noted) Exec(_ context.Context, _ string, args ...any) (pgconn.CommandTag, error) {
	if n.told != nil {
		*n.told = append(*n.told, args...)
	}
	return pgconn.CommandTag{}, nil
}

// Of thousands of stages that are too many each asks again by itself, and from the
// end of the queue: once it has its place there, it is not put there again.
func TestStagesThatAreTooMany(t *testing.T) {
	t.Parallel()
	var told []any
	now := time.Now()
	s := stages{db: noted{told: &told}, clock: func() time.Time { return now }, log: slog.New(slog.DiscardHandler)}
	tenant, nothing := uuid.New(), func() error { return nil }
	for range stagesOfAnyone {
		require.Zero(t, s.begin(tenant))
	}
	refused := func(job *rivertype.JobRow) time.Duration {
		var snooze *river.JobSnoozeError
		require.ErrorAs(t, s.work(t.Context(), job, tenant, nothing, nil), &snooze)
		return snooze.Duration
	}
	for i := range 1000 {
		require.Equal(t, stageInterval+time.Duration(i)*stageSpacing, refused(&rivertype.JobRow{ID: 7, Priority: 1}))
	}
	require.Len(t, told, 2000)
	require.Equal(t, []any{int16(priorityPutOff), int64(7)}, told[:2])
	for range 20_000 {
		require.LessOrEqual(t, refused(&rivertype.JobRow{Priority: priorityPutOff}), stageWaitMax)
	}
	require.Len(t, told, 2000)
	now = now.Add(time.Hour)
	require.Equal(t, stageInterval, refused(&rivertype.JobRow{Priority: priorityPutOff}))
	for range stagesOfAnyone {
		s.end(tenant)
	}
	require.Empty(t, s.working)
}

// However many stages a tenant has, it leaves workers to others; what is one too
// many comes back later, and an error stays what it is.
func TestStagesOfATenant(t *testing.T) {
	t.Parallel()
	s := stages{db: noted{}, clock: time.Now, log: slog.New(slog.DiscardHandler)}
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
	begin(one, stagesOfAnyone)
	var snooze *river.JobSnoozeError
	require.ErrorAs(t, s.work(t.Context(), job, one, nothing, nil), &snooze)
	require.ErrorIs(t, s.work(t.Context(), job, two, func() error { return broken }, nil), broken)
	begin(two, stagesOfTenantMax)
	require.ErrorAs(t, s.work(t.Context(), job, two, nothing, nil), &snooze)
	require.NoError(t, s.work(t.Context(), job, uuid.New(), nothing, nil))
	close(release)
	ended.Wait()
	require.NoError(t, s.work(t.Context(), job, one, nothing, nil))
	require.Zero(t, s.all)
	require.Empty(t, s.working, "what has ended is still counted")
}

// Errors of a stage's job are those of the stage: after some of them it is given up.
func TestStagesArePutOffWithoutAnError(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	away := fault.Wrap(errors.New("no connection"), fault.Unavailable, "the database is away")
	s := stages{log: slog.New(slog.DiscardHandler)}
	var snooze *river.JobSnoozeError
	for name, of := range map[string]struct {
		ctx   context.Context
		err   error
		isOff bool
	}{
		"the database is away": {t.Context(), fmt.Errorf("read: %w", away), true},
		"the process stops":    {stopped, context.Canceled, true},
		"done as it stops":     {stopped, nil, false},
		"an error of its own":  {t.Context(), errors.New("broken"), false},
	} {
		err := s.work(of.ctx, &rivertype.JobRow{}, uuid.New(), func() error { return of.err }, nil)
		require.Equal(t, of.isOff, errors.As(err, &snooze), name)
		if !of.isOff {
			require.Equal(t, of.err, err, name)
		}
	}
}

// A stage is given up after its fifth error, unless what kept it from its end is none
// of its own or there is nothing to give up.
func TestStagesAreGivenUp(t *testing.T) {
	t.Parallel()
	s := stages{log: slog.New(slog.DiscardHandler)}
	broken := errors.New("broken")
	away := fault.Wrap(errors.New("no connection"), fault.Unavailable, "the database is away")
	var cancelled *river.JobCancelError
	var snooze *river.JobSnoozeError
	for name, of := range map[string]struct {
		errors    int // before this attempt
		err       error
		hasFailed bool
		failErr   error
		want      any // the error of the job, or a type of it
	}{
		"the fourth error":               {3, broken, true, nil, broken},
		"the fifth error":                {4, broken, true, nil, &cancelled},
		"the database is away":           {4, away, true, nil, &snooze},
		"nothing to give up":             {4, broken, false, nil, broken},
		"away when it is to be given up": {4, broken, false, away, &snooze},
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
