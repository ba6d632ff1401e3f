package schedule

import (
	"context"
	"time"
)

// tickInterval is how often a process looks for schedules that are due.
const tickInterval = time.Second

// Start looks for schedules that are due, about once a second, until Stop.
func (s *Service) Start(ctx context.Context) {
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
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
		held, err := s.Fire(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.Log.WarnContext(ctx, "schedules that are due cannot be fired, trying again", "error", err)
		}
		if err == nil && held == claimMax {
			continue // there may be more
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
