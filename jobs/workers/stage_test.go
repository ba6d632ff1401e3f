package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"tranche/internal/fault"
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
				_ = s.work(t.Context(), tenantID, func() error { working.Done(); <-release; return nil })
			})
		}
		working.Wait()
	}
	nothing := func() error { return nil }
	begin(one, stagesOfAnyone)
	var snooze *river.JobSnoozeError
	require.ErrorAs(t, s.work(t.Context(), one, nothing), &snooze)
	require.ErrorIs(t, s.work(t.Context(), two, func() error { return broken }), broken)
	begin(two, stagesOfTenantMax)
	require.ErrorAs(t, s.work(t.Context(), two, nothing), &snooze)
	require.NoError(t, s.work(t.Context(), uuid.New(), nothing))
	close(release)
	ended.Wait()
	require.NoError(t, s.work(t.Context(), one, nothing))
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
		err := s.work(of.ctx, uuid.New(), func() error { return of.err })
		require.Equal(t, of.isOff, errors.As(err, &snooze), name)
		if !of.isOff {
			require.Equal(t, of.err, err, name)
		}
	}
}
