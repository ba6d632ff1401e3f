package service

import (
	"context"

	"tranche/internal/execution"
)

// listening is the process' one connection that receives notifications.
type listening struct {
	stop  context.CancelFunc
	ended chan struct{}
}

// listen begins to receive what other processes tell.
func (s *Service) listen(ctx context.Context) {
	s.pools.Listen.Subscribe(execution.CancelChannel,
		execution.Subscription(s.parts.requests.executions, s.parts.background.executions))
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.listening = &listening{stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(s.listening.ended)
		_ = s.pools.Listen.Run(ctx) // ends with ctx alone
	}()
}

// deafen ends listen.
func (s *Service) deafen() {
	if s.listening != nil {
		s.listening.stop()
		<-s.listening.ended
	}
}
