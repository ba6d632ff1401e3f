package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of HTTP connections. Package api limits request bodies, and extends the time
// of a download as long as it makes progress.
const (
	headerTimeMax = 10 * time.Second
	// responseTimeMax is longer than the longest synchronous execution, 300 s.
	responseTimeMax = 6 * time.Minute
	idleTimeMax     = 2 * time.Minute
	headerBytesMax  = 64 << 10

	// drainTimeMax limits how long a stop waits for requests, stopTimeMax the whole stop.
	drainTimeMax = 15 * time.Second
	stopTimeMax  = 22 * time.Second
)

// Run starts the process and serves requests on listener until ctx ends. It then stops
// accepting requests, finishes running work or hands it over, and returns within 22 s.
// It calls ready when it serves requests.
func (s *Server) Run(ctx context.Context, listener net.Listener, ready func()) error {
	server := &http.Server{
		Handler:                      s.handler,
		ReadHeaderTimeout:            headerTimeMax,
		WriteTimeout:                 responseTimeMax,
		IdleTimeout:                  idleTimeMax,
		MaxHeaderBytes:               headerBytesMax,
		DisableGeneralOptionsHandler: true, // package api answers OPTIONS * like other requests
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

// shutdown lets requests end and drains the work that they may wait for.
func (s *Server) shutdown(ctx context.Context, server *http.Server) error {
	s.config.Log.InfoContext(ctx, "stopping")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if err := server.Shutdown(ctx); err != nil {
			s.config.Log.WarnContext(ctx, "requests were interrupted", "error", server.Close())
		}
	}()
	err := s.drain(ctx)
	<-answered
	s.close(ctx)
	s.config.Log.InfoContext(ctx, "stopped")
	return err
}

// startExporter serves the metrics until close.
func (s *Server) startExporter() {
	if s.config.Metrics == nil {
		return
	}
	s.exporter = &http.Server{
		Handler: s.metrics.Handler(), ReadHeaderTimeout: headerTimeMax, WriteTimeout: headerTimeMax, IdleTimeout: idleTimeMax,
		ErrorLog: slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := s.exporter.Serve(s.config.Metrics); !errors.Is(err, http.ErrServerClosed) {
			s.config.Log.Error("the metrics server stopped", "error", err)
		}
	}()
}
