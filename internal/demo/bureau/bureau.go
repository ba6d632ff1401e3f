// Package bureau is a stand-in for a credit bureau and a fraud screening: an HTTP
// server with fictitious answers. With the same seed it gives the same answer for the
// same borrower. It is slow for some borrowers and fails for some, and it honours
// Idempotency-Key. It must not know other packages of the project.
package bureau

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Config sets the behaviour of a bureau. Shares are parts of the borrowers, from 0 to
// 1. The same borrowers are affected at every call.
type Config struct {
	Seed uint64
	// SlowShare of the borrowers get their answers after SlowFor.
	SlowShare float64
	SlowFor   time.Duration
	// FlakyShare of the borrowers get a 503 at the first call.
	FlakyShare float64
	// DownShare of the borrowers get a 500 at every call.
	DownShare float64
}

// Realistic returns the behaviour of a bureau on an ordinary day.
func Realistic(seed uint64) Config {
	return Config{Seed: seed, SlowShare: 0.05, SlowFor: 200 * time.Millisecond, FlakyShare: 0.04, DownShare: 0.005}
}

// Counts counts the requests to a bureau.
type Counts struct {
	Calls    int // all requests
	Repeated int // requests with an Idempotency-Key that was answered before
	Failed   int // requests answered with 500 or 503
}

// Server is a running bureau.
type Server struct {
	config   Config
	server   *http.Server
	listener net.Listener
	stopped  chan struct{}

	mu      sync.Mutex
	counts  Counts
	answers map[string]answer // by Idempotency-Key
	tried   map[string]bool   // flaky borrowers that got their 503, by product and borrower
}

// Start starts a bureau at an address. 127.0.0.1:0 selects a free port.
func Start(ctx context.Context, address string, config Config) (*Server, error) {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Server{
		config:   config,
		listener: listener,
		stopped:  make(chan struct{}),
		answers:  map[string]answer{},
		tried:    map[string]bool{},
	}
	s.server = &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.stopped)
		// Serve's error is always ErrServerClosed: the listener is the server's own.
		_ = s.server.Serve(listener)
	}()
	return s, nil
}

// Addr returns the host and port of the bureau.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// URL returns the base address of the bureau.
func (s *Server) URL() string { return "http://" + s.Addr() }

// Counts returns the counts so far.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Close stops the bureau and closes its connections.
func (s *Server) Close() error {
	err := s.server.Close()
	<-s.stopped
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
