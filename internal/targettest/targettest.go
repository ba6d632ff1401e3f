// Package targettest gives tests an HTTP server that workflows, gateways and
// clients call. The server records each call, answers by script, and can be slow,
// silent or broken. A test waits for calls by event, never by time.
//
//	target := targettest.New(t, targettest.WithAnswer(targettest.JSON(`{"score":700}`)))
//	target.Queue(targettest.Status(http.StatusServiceUnavailable)) // the first call fails
//	release := target.Hold()                                       // calls wait for their answers
//	// ... something calls target.URL
//	target.Wait(1)
//	release()
//	require.Equal(t, "B-1", target.Calls()[0].Query.Get("id"))
//
// Only tests may use it. It knows no other package of the project.
package targettest

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"
)

// waitMax limits each wait for calls. It only decides how long a failing test takes.
const waitMax = 2 * time.Minute

// Call is one recorded request.
type Call struct {
	// N is the position of the call among all calls of the target, from 1.
	N      int
	Method string
	// URI is the path with its query, as it was sent.
	URI    string
	Path   string
	Query  url.Values
	Header http.Header
	Body   string
	// Key is the Idempotency-Key header, Attempt the number of calls with it so far.
	Key     string
	Attempt int
	// Time is when the whole request had arrived.
	Time time.Time
}

// Target is a running server. Its methods are safe for concurrent use; those that
// wait must be called on the goroutine of the test.
type Target struct {
	// URL is the base address, without a slash at the end.
	URL string

	tb      testing.TB
	address string
	config  config

	mu          sync.Mutex
	server      *httptest.Server // nil between Stop and Start
	changed     chan struct{}    // closed and replaced at each change
	calls       []Call
	received    int            // calls so far; Take does not reset it
	keys        map[string]int // calls by idempotency key
	abandoned   int
	inFlight    int
	inFlightMax int
	connections int
	queue       []http.HandlerFunc
	routes      map[string][]http.HandlerFunc // by "METHOD /path?query"
	answer      http.HandlerFunc
	holds       []*hold
}

type hold struct {
	matches  func(Call) bool
	released chan struct{}
}

type config struct {
	answer         http.HandlerFunc
	isTLS, isHTTP2 bool
	isStopped      bool
}

// Option changes how a target starts.
type Option func(*config)

// WithAnswer sets the answer to every call that has no answer of its own from Queue
// or On. Without this option the answer is 200 with {}. Any handler is an answer; the
// request's body can be read again, although it is recorded.
func WithAnswer(answer http.HandlerFunc) Option { return func(c *config) { c.answer = answer } }

// WithTLS makes the target serve HTTPS, with HTTP/2 if isHTTP2 is true.
func WithTLS(isHTTP2 bool) Option {
	return func(c *config) { c.isTLS, c.isHTTP2 = true, isHTTP2 }
}

// WithStopped reserves the address and refuses connections until Start.
func WithStopped() Option { return func(c *config) { c.isStopped = true } }

// New starts a target on 127.0.0.1. It ends with the test; calls that are still held
// are then released.
func New(tb testing.TB, options ...Option) *Target {
	tb.Helper()
	t := &Target{
		tb: tb, config: config{answer: JSON(`{}`)}, address: "127.0.0.1:0",
		changed: make(chan struct{}), keys: map[string]int{}, routes: map[string][]http.HandlerFunc{},
	}
	for _, option := range options {
		option(&t.config)
	}
	t.answer = t.config.answer
	t.Start()
	if t.config.isStopped {
		t.Stop()
	}
	tb.Cleanup(func() {
		t.releaseAll()
		t.Stop()
	})
	return t
}

// Start listens again, on the same address, after Stop.
func (t *Target) Start() {
	t.tb.Helper()
	listener, err := net.Listen("tcp", t.address)
	if err != nil {
		t.tb.Fatalf("targettest: listen on %s: %v", t.address, err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(t.serve))
	server.Listener.Close()
	server.Listener = listener
	server.EnableHTTP2 = t.config.isHTTP2
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // broken connections are part of tests
	server.Config.ConnState = t.countConnection
	if t.config.isTLS {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.server, t.URL, t.address = server, server.URL, listener.Addr().String()
}

// Stop closes all connections and refuses new ones until Start.
func (t *Target) Stop() {
	t.mu.Lock()
	server := t.server
	t.server = nil
	t.mu.Unlock()
	if server != nil {
		server.CloseClientConnections()
		server.Close()
	}
}

// Server returns the HTTP server, for its certificate and its listener.
func (t *Target) Server() *httptest.Server {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.server
}

// Address returns the host and the port.
func (t *Target) Address() string { return t.address }

// Queue adds answers to the next calls, one each, in this order. They come before
// those of On and SetAnswer.
func (t *Target) Queue(answers ...http.HandlerFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = append(t.queue, answers...)
}

// On sets the answers to calls of one method and address, such as "GET /score?id=7":
// one each, in this order; the last one answers all later calls.
func (t *Target) On(call string, answers ...http.HandlerFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.routes[call] = answers
}

// SetAnswer replaces the answer of WithAnswer for the calls from now on.
func (t *Target) SetAnswer(answer http.HandlerFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answer = answer
}

// Hold makes the calls from now on wait for their answers until release is called.
// If matches are given, only calls that one of them accepts wait. Held calls are
// recorded at once. A held call whose caller abandons it gets no answer.
func (t *Target) Hold(matches ...func(Call) bool) (release func()) {
	h := &hold{released: make(chan struct{}), matches: func(c Call) bool {
		return len(matches) == 0 || slices.ContainsFunc(matches, func(match func(Call) bool) bool { return match(c) })
	}}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds = append(t.holds, h)
	return func() { t.release(h) }
}

func (t *Target) release(h *hold) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.holds, h); i >= 0 {
		t.holds = slices.Delete(t.holds, i, i+1)
		close(h.released)
	}
}

func (t *Target) releaseAll() {
	t.mu.Lock()
	holds := slices.Clone(t.holds)
	t.mu.Unlock()
	for _, h := range holds {
		t.release(h)
	}
}

type callKey struct{}

// CallOf returns the call that an answer answers.
func CallOf(r *http.Request) Call { return r.Context().Value(callKey{}).(Call) }

func (t *Target) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // with the whole body read, the server notices when the caller leaves
	r.Body = io.NopCloser(bytes.NewReader(body))
	c, answer, holds := t.record(r, string(body))
	defer t.end(r)
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	for _, h := range holds {
		select {
		case <-h.released:
		case <-r.Context().Done():
			return
		}
	}
	answer(w, r)
}

// record adds the call and returns it with its answer and the holds it waits for.
func (t *Target) record(r *http.Request, body string) (Call, http.HandlerFunc, []*hold) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.received++
	key := r.Header.Get("Idempotency-Key")
	t.keys[key]++
	c := Call{
		N: t.received, Method: r.Method, URI: r.URL.RequestURI(), Path: r.URL.Path, Query: r.URL.Query(),
		Header: r.Header.Clone(), Body: body, Key: key, Attempt: t.keys[key], Time: time.Now(),
	}
	var holds []*hold
	for _, h := range t.holds {
		if h.matches(c) {
			holds = append(holds, h)
		}
	}
	t.calls = append(t.calls, c)
	t.inFlight++
	t.inFlightMax = max(t.inFlightMax, t.inFlight)
	t.notify()
	return c, t.next(c), holds
}

// next chooses the answer to a call.
func (t *Target) next(c Call) http.HandlerFunc {
	if len(t.queue) > 0 {
		answer := t.queue[0]
		t.queue = t.queue[1:]
		return answer
	}
	name := c.Method + " " + c.URI
	answers := t.routes[name]
	if len(answers) == 0 {
		return t.answer
	}
	if len(answers) > 1 {
		t.routes[name] = answers[1:]
	}
	return answers[0]
}

func (t *Target) end(r *http.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight--
	if r.Context().Err() != nil {
		t.abandoned++
	}
	t.notify()
}

func (t *Target) countConnection(_ net.Conn, state http.ConnState) {
	if state == http.StateNew {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.connections++
		t.notify()
	}
}

// notify wakes all waits. The caller holds the lock.
func (t *Target) notify() {
	close(t.changed)
	t.changed = make(chan struct{})
}
