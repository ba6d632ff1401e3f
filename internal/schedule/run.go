package schedule

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"tranche/internal/postgres"
)

const (
	// tickInterval is how often a process looks for schedules that are due.
	tickInterval = time.Second
	// claimersMax is how many transactions of a process fire at a time where
	// more is due than one of them takes.
	claimersMax = 4
)

// Start looks for schedules that are due, about once a second, until Stop.
func (s *Service) Start(ctx context.Context) {
	ctx, s.stop = context.WithCancel(postgres.AsSystem(context.WithoutCancel(ctx)))
	s.stopped = make(chan struct{})
	go s.run(ctx)
}

// Stop ends what Start began: a firing that is under way is undone, and left to
// other processes.
func (s *Service) Stop() {
	if s.stop == nil {
		return
	}
	s.stop()
	<-s.stopped
}

func (s *Service) run(ctx context.Context) {
	defer close(s.stopped)
	ticker := time.NewTicker(tickInterval)
	defer ticker.Stop()
	for {
		err := s.fireAll(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.Log.WarnContext(ctx, "schedules that are due cannot be fired, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// fireAll fires until little or nothing that is due is left.
func (s *Service) fireAll(ctx context.Context) error {
	held, err := s.Fire(ctx)
	if err != nil || held < claimMax {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for range claimersMax {
		group.Go(func() error {
			for {
				if held, err := s.Fire(ctx); err != nil || held < claimMax {
					return err
				}
			}
		})
	}
	return group.Wait()
}
