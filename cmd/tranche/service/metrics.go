package service

import (
	"errors"
	"log/slog"
	"net/http"
)

// watch has the metrics show the connections of this process and what the database
// knows of all of them.
func (s *Service) watch() {
	s.metrics.Watch("api", s.pools.API)
	s.metrics.Watch("workers", s.pools.Workers)
	s.metrics.Watch("queue", s.pools.Queue)
	s.metrics.WatchDatabase(s.control, s.config.Log)
}

// showMetrics answers Prometheus until close.
func (s *Service) showMetrics() {
	if s.config.Metrics == nil {
		return
	}
	s.shown = &http.Server{
		Handler: s.metrics.Handler(), ReadHeaderTimeout: headerTimeMax, WriteTimeout: headerTimeMax, IdleTimeout: idleTimeMax,
		ErrorLog: slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := s.shown.Serve(s.config.Metrics); !errors.Is(err, http.ErrServerClosed) {
			s.config.Log.Error("the metrics cannot be read any more", "error", err)
		}
	}()
}
