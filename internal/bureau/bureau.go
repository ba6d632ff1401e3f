// Package bureau is a stand-in for a credit bureau and a fraud screening: a
// real HTTP server with made-up answers, for the demo and the tests. It
// answers the same borrower the same way for a given seed, is slow sometimes
// and fails sometimes, and honours Idempotency-Key as the real ones do. It
// must know nothing else of the project.
package bureau

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Config says how a bureau behaves. Shares are of borrowers, from 0 to 1: a
// borrower who is slow to look up is slow at every call.
type Config struct {
	Seed uint64
	// SlowShare of the borrowers take SlowFor to look up.
	SlowShare float64
	SlowFor   time.Duration
	// FlakyShare of the borrowers meet a 503 first and an answer at the next call.
	FlakyShare float64
	// DownShare of the borrowers meet a 500 at every call.
	DownShare float64
}

// Realistic is a bureau on an ordinary day.
func Realistic(seed uint64) Config {
	return Config{Seed: seed, SlowShare: 0.05, SlowFor: 200 * time.Millisecond, FlakyShare: 0.04, DownShare: 0.005}
}

// Counts says what a bureau was asked so far.
type Counts struct {
	Calls    int // all requests
	Repeated int // of them, with an Idempotency-Key that was answered before
	Refused  int // answered with 500 or 503
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
	tried   map[string]bool   // flaky borrowers that met their 503, by product and borrower
}

// Start opens a bureau at an address such as 127.0.0.1:0, which takes a free port.
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

// Addr is the host and port the bureau listens at.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// URL is what the addresses of the bureau begin with.
func (s *Server) URL() string { return "http://" + s.Addr() }

// Counts returns what the bureau was asked so far.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Keys returns how often each Idempotency-Key was presented and answered with
// a result, so that a test can tell repetitions from new effects.
func (s *Server) Keys() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make(map[string]int, len(s.answers))
	for key, a := range s.answers {
		keys[key] = a.times
	}
	return keys
}

// Close stops the bureau and cuts what is under way.
func (s *Server) Close() error {
	err := s.server.Close()
	<-s.stopped
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
