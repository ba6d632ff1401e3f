package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Limits of kept connections. They are closed before the 5 s after which
// common servers close theirs, so that a request seldom meets a dying one.
const (
	idleTimeout        = 4 * time.Second
	idleConnsMax       = 2048
	idleConnsMaxByHost = 800
)

// sentWholeMax is how many bytes of a request are sent before the answer is looked
// for: the buffers of a connection take them even if the other side does not read.
const sentWholeMax = 16 << 10

// transport sends small requests over HTTP/1.1 on the caller's goroutine, where
// net/http's has two goroutines more for each connection: half of what a call
// costs, and a batch makes a million. What goes over the wire is written and read
// by net/http; the connections are kept here. HTTP/2, large requests and names that
// are not ASCII are left to net/http's transport.
type transport struct {
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	tls   *tls.Config     // not other's, which completes its own when it is first used
	other *http.Transport // for what is left to it

	mu       sync.Mutex
	idle     map[string][]*connection // by origin, the one that was used last at the end
	kept     int                      // in idle
	isSwept  bool                     // a sweep is to come
	speaks2  map[string]bool          // the origins that chose HTTP/2
	isClosed bool
}

// RoundTrip sends a request and returns the answer, whose body is to be closed. A
// request that may be repeated is sent once more when the other side closed a kept
// connection just then.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	origin := r.URL.Scheme + "://" + r.URL.Host
	if !isSmall(r) || !isASCII(r.URL.Host) || t.choseHTTP2(origin) {
		return t.leave(r)
	}
	if c := t.takeIdle(origin); c != nil {
		answer, err := t.send(c, r)
		if err == nil || c.isAnswered || r.Context().Err() != nil || !idempotent(r.Method) {
			return answer, err
		}
		if r.GetBody != nil {
			again := *r
			if again.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
			r = &again
		}
	}
	conn, err := t.connect(r.Context(), r.URL)
	if err != nil {
		return nil, err
	}
	if conn == nil {
		t.noteHTTP2(origin)
		return t.leave(r)
	}
	return t.send(newConnection(t, origin, conn), r)
}

// send sends a request over a connection, unless its caller has gone.
func (t *transport) send(c *connection, r *http.Request) (answer *http.Response, err error) {
	progressOf(r.Context()).isConnected.Store(true)
	if err = r.Context().Err(); err == nil {
		answer, err = c.exchange(r)
	}
	if err != nil {
		c.close()
	}
	return answer, err
}

// isSmall reports whether a request is sent whole.
func isSmall(r *http.Request) bool {
	size := len(r.URL.Path) + len(r.URL.RawQuery)
	if r.Body != nil {
		if r.ContentLength < 0 || r.ContentLength > sentWholeMax {
			return false
		}
		size += int(r.ContentLength)
	}
	for name, values := range r.Header {
		for _, value := range values {
			size += len(name) + len(value)
		}
	}
	return size <= sentWholeMax
}

// leave leaves a request to net/http's transport.
func (t *transport) leave(r *http.Request) (*http.Response, error) {
	p := progressOf(r.Context())
	return t.other.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { p.isConnected.Store(true) },
	})))
}

// connect dials, with TLS where the scheme says so; nil if the other side chose
// HTTP/2.
func (t *transport) connect(ctx context.Context, u *url.URL) (net.Conn, error) {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	conn, err := t.dial(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil || u.Scheme == "http" {
		return conn, err
	}
	config := t.tls.Clone()
	config.ServerName, config.NextProtos = u.Hostname(), []string{"h2", "http/1.1"}
	secured := tls.Client(conn, config)
	ctx, cancel := context.WithTimeout(ctx, tlsTimeout)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	if secured.ConnectionState().NegotiatedProtocol == "h2" {
		_ = conn.Close()
		return nil, nil
	}
	return secured, nil
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}

func (t *transport) choseHTTP2(origin string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.speaks2[origin]
}

func (t *transport) noteHTTP2(origin string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.speaks2 == nil || len(t.speaks2) >= idleConnsMax {
		t.speaks2 = map[string]bool{}
	}
	t.speaks2[origin] = true
}

// takeIdle takes the kept connection of an origin that was used last and is still
// open; nil if there is none.
func (t *transport) takeIdle(origin string) *connection {
	for {
		c := t.takeLast(origin)
		if c == nil || c.isOpen() {
			return c
		}
		c.close()
	}
}

func (t *transport) takeLast(origin string) *connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.idle[origin]
	if len(kept) == 0 {
		return nil
	}
	c := kept[len(kept)-1]
	t.kept--
	if t.idle[origin] = slices.Delete(kept, len(kept)-1, len(kept)); len(kept) == 1 {
		delete(t.idle, origin)
	}
	return c
}

// keep keeps a connection for later requests, or closes it.
func (t *transport) keep(c *connection) {
	c.idleSince = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isClosed || len(t.idle[c.origin]) >= idleConnsMaxByHost {
		c.close()
		return
	}
	if t.kept >= idleConnsMax {
		t.closeOldest()
	}
	if t.idle == nil {
		t.idle = map[string][]*connection{}
	}
	t.idle[c.origin] = append(t.idle[c.origin], c)
	t.kept++
	if !t.isSwept {
		t.isSwept = true
		time.AfterFunc(idleTimeout, t.sweep)
	}
}

// closeOldest closes the connection that nobody used for longest. The caller holds
// the lock.
func (t *transport) closeOldest() {
	var oldest *connection
	for _, kept := range t.idle {
		if oldest == nil || kept[0].idleSince.Before(oldest.idleSince) {
			oldest = kept[0]
		}
	}
	oldest.close()
	t.drop(oldest.origin, 1)
}

// drop forgets the first connections of an origin. The caller holds the lock.
func (t *transport) drop(origin string, n int) {
	t.kept -= n
	if t.idle[origin] = slices.Delete(t.idle[origin], 0, n); len(t.idle[origin]) == 0 {
		delete(t.idle, origin)
	}
}

// sweep closes the connections that nobody used for long, and comes back while
// there are others.
func (t *transport) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeIdle(time.Now().Add(-idleTimeout))
	if t.isSwept = t.kept > 0; t.isSwept {
		time.AfterFunc(idleTimeout/4, t.sweep)
	}
}

// closeIdle closes the connections that were used last until then. The caller
// holds the lock.
func (t *transport) closeIdle(until time.Time) {
	for origin, kept := range t.idle {
		n := 0
		for ; n < len(kept) && !kept[n].idleSince.After(until); n++ {
			kept[n].close()
		}
		t.drop(origin, n)
	}
}

// close closes the connections that are kept, and keeps no more.
func (t *transport) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isClosed = true
	t.closeIdle(time.Now())
	t.other.CloseIdleConnections()
}
