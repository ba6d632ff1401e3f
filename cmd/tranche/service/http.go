package service

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of HTTP connections. What a body may take is the business of package
// api, which also gives a download more time for as long as it moves.
const (
	headerTimeMax = 10 * time.Second
	// answerTimeMax is longer than the longest synchronous execution, 300 s.
	answerTimeMax  = 6 * time.Minute
	idleTimeMax    = 2 * time.Minute
	headerBytesMax = 64 << 10

	// drainTimeMax is how long a stop waits for requests, stopTimeMax for all.
	drainTimeMax = 15 * time.Second
	stopTimeMax  = 22 * time.Second
)

// Run starts the service and answers requests on listener until ctx ends; then
// it accepts no more, lets what runs finish or hands it over, and returns, all
// within 22 s. It calls ready once requests are answered.
func (s *Service) Run(ctx context.Context, listener net.Listener, ready func()) error {
	server := &http.Server{
		Handler:                      s.handler,
		ReadHeaderTimeout:            headerTimeMax,
		WriteTimeout:                 answerTimeMax,
		IdleTimeout:                  idleTimeMax,
		MaxHeaderBytes:               headerBytesMax,
		DisableGeneralOptionsHandler: true, // OPTIONS * is answered like everything else
		ErrorLog:                     slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
	}
	defer func() { _ = listener.Close() }()
	err := s.Start(ctx)
	if err == nil {
		failed := make(chan error, 1)
		go func() { failed <- server.Serve(listener) }()
		ready()
		select {
		case err = <-failed:
		case <-ctx.Done():
		}
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeMax)
	defer cancel()
	return errors.Join(err, s.shutdown(stopping, server))
}

// shutdown lets requests end while the work they may wait for is drained.
func (s *Service) shutdown(ctx context.Context, server *http.Server) error {
	s.config.Log.InfoContext(ctx, "stopping")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if err := server.Shutdown(ctx); err != nil {
			s.config.Log.WarnContext(ctx, "requests were cut off", "error", server.Close())
		}
	}()
	err := s.drain(ctx)
	<-answered
	s.close(ctx)
	s.config.Log.InfoContext(ctx, "stopped")
	return err
}
