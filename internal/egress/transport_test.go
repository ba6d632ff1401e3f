package egress

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// connections counts the connections that a server is given from now on.
func connections(server *httptest.Server) *atomic.Int64 {
	var n atomic.Int64
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			n.Add(1)
		}
	}
	return &n
}

// counted is a server that counts its connections, and its client.
func counted(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *Client, *atomic.Int64) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	n := connections(server)
	server.Start()
	t.Cleanup(server.Close)
	return server, openTo(t, server), n
}

func get(t *testing.T, client *Client, url string) *Response {
	t.Helper()
	answer, err := client.Do(t.Context(), Request{Method: http.MethodGet, URL: url})
	require.NoError(t, err)
	return answer
}

func (t *transport) keeps() (kept int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, list := range t.idle {
		kept += len(list)
	}
	return kept
}

// A connection serves one request after the other, whatever the answers are like
// that end where they say.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	server, client, n := counted(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/chunked":
			_, _ = io.WriteString(w, "a")
			_ = http.NewResponseController(w).Flush()
			w.Header().Set(http.TrailerPrefix+"Sum", "1")
			_, _ = io.WriteString(w, "b")
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		case "/unchanged":
			w.WriteHeader(http.StatusNotModified)
		case "/early":
			w.Header().Set("Link", "</a>")
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.WriteString(w, "late")
		case "/packed":
			w.Header().Set("Content-Encoding", "GZIP")
			packed := gzip.NewWriter(w)
			_, _ = io.WriteString(packed, "unpacked")
			_ = packed.Close()
		case "/packed-nothing":
			w.Header().Set("Content-Encoding", "gzip")
		default:
			_, _ = io.WriteString(w, r.Header.Get("Accept-Encoding"))
		}
	})
	for range 2 {
		for path, want := range map[string]string{"/": "gzip", "/chunked": "ab", "/empty": "", "/unchanged": "", "/early": "late", "/packed": "unpacked", "/packed-nothing": ""} {
			answer := get(t, client, server.URL+path)
			require.Equal(t, want, string(answer.Body), path)
			require.Empty(t, answer.Header.Get("Content-Encoding"), path)
		}
		answer, err := client.Do(t.Context(), Request{Method: http.MethodHead, URL: server.URL + "/packed"})
		require.NoError(t, err)
		require.Equal(t, "GZIP", answer.Header.Get("Content-Encoding"), "of HEAD nothing is unpacked")
		answer, err = client.Do(t.Context(), Request{Method: http.MethodGet, URL: server.URL, Header: http.Header{"Range": {"bytes=0-1"}}})
		require.NoError(t, err)
		require.Empty(t, answer.Body, "of parts no packed ones are asked for")
		_, err = client.Do(t.Context(), Request{Method: http.MethodPost, URL: server.URL, Body: []byte("small")})
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, n.Load())
	client.Close()
	require.Zero(t, client.transport.keeps())
	get(t, client, server.URL)
	require.Zero(t, client.transport.keeps(), "none is kept after Close")
}

// Nothing more is sent over a connection of which it is not certain where the
// next answer begins.
func TestConnectionsAreNotKept(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"closing":        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.0":       "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"more than said": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
		"another":        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok\r\n",
		"switched":       "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
		"to the end":     "HTTP/1.1 200 OK\r\n\r\nok",
		"of no status":   "HTTP/1.1 099 None\r\nContent-Length: 45\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, client := raw(t, func(conn net.Conn) { _, _ = io.WriteString(conn, answer) })
			for range 2 {
				got, err := client.Do(t.Context(), Request{Method: http.MethodGet, URL: url})
				require.Zero(t, client.transport.keeps())
				if name == "of no status" {
					requireReason(t, Broken, err)
					continue
				}
				require.NoError(t, err)
				require.NotContains(t, string(got.Body), "forged")
			}
		})
	}
	t.Run("too large", func(t *testing.T) {
		t.Parallel()
		server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		_, err := client.Do(t.Context(), Request{Method: http.MethodGet, URL: server.URL, ResponseBytesMax: 10})
		requireReason(t, TooLarge, err)
		require.Zero(t, client.transport.keeps())
	})
}

// What comes when nobody has asked is no answer to the next request.
func TestUnaskedAnswersAreNotTaken(t *testing.T) {
	t.Parallel()
	var accepted atomic.Int64
	answered := make(chan struct{}, 2)
	url, client := raw(t, func(conn net.Conn) {
		accepted.Add(1)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		<-answered // the client has read it
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
		answered <- struct{}{}
		_, _ = io.Copy(io.Discard, conn)
	})
	t.Cleanup(client.Close)
	for range 2 {
		require.Equal(t, "ok", string(get(t, client, url).Body))
		answered <- struct{}{}
		require.Eventually(t, func() bool { return len(answered) == 1 }, time.Second*10, time.Millisecond)
		time.Sleep(10 * time.Millisecond) // over the wire
		<-answered
	}
	require.EqualValues(t, 2, accepted.Load())
}

// A connection that the other side closed while nobody used it is noticed before
// anything is sent over it, so that even a POST is not lost.
func TestClosedConnectionsAreNoticed(t *testing.T) {
	t.Parallel()
	var accepted atomic.Int64
	url, client := raw(t, func(conn net.Conn) {
		accepted.Add(1)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") // and closes it
	})
	for i := range 3 {
		_, err := client.Do(t.Context(), Request{Method: http.MethodPost, URL: url, Body: []byte("pay")})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			c := client.transport.takeLast(strings.TrimSuffix(url, "/"))
			if c == nil {
				return false
			}
			defer client.transport.keep(c)
			return !c.isOpen()
		}, 10*time.Second, time.Millisecond)
		require.EqualValues(t, i+1, accepted.Load())
	}
}

// A GET that a kept connection ended under is sent once more over another, as RFC
// 9110, section 9.2.2, allows; over a new connection it is not.
func TestGetIsRepeatedOnce(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	address := listen(t, func(conn net.Conn) { // answers the first request, and closes at the second
		in := bufio.NewReader(conn)
		for n := range 2 {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			requests.Add(1)
			if n == 0 {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		}
	})
	client, url := openAt(t, address), "http://"+address
	get(t, client, url)
	get(t, client, url)
	require.EqualValues(t, 3, requests.Load())
	_, err := client.Do(t.Context(), Request{Method: http.MethodPost, URL: url, Body: []byte("pay")})
	requireReason(t, Broken, err)
	require.EqualValues(t, 4, requests.Load(), "a POST is sent once")

	var group sync.WaitGroup // however many are kept
	for range 10 {
		group.Go(func() { get(t, client, url) })
	}
	group.Wait()
	require.Positive(t, client.transport.keeps())
	before := requests.Load()
	_, err = client.Do(t.Context(), Request{Method: http.MethodDelete, URL: url})
	require.NoError(t, err)
	require.EqualValues(t, 2, requests.Load()-before)
}

// Nothing is sent for a caller who has gone.
func TestNothingIsSentForNobody(t *testing.T) {
	t.Parallel()
	var posts atomic.Int64
	server, client := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			posts.Add(1)
		}
	})
	for range 50 {
		get(t, client, server.URL)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := client.Do(ctx, Request{Method: http.MethodPost, URL: server.URL, Body: []byte("pay")})
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Zero(t, posts.Load())
}

// Requests that the buffers of a connection might not take are not sent whole
// before their answer is looked for.
func TestSmallRequests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		request Request
		small   bool
	}{
		"plain":         {Request{URL: "http://example.com/"}, true},
		"body":          {Request{URL: "http://example.com/", Body: make([]byte, sentWholeMax-100)}, true},
		"large body":    {Request{URL: "http://example.com/", Body: make([]byte, sentWholeMax)}, false},
		"large headers": {Request{URL: "http://example.com/", Header: http.Header{"X": {strings.Repeat("x", sentWholeMax)}}}, false},
		"all together":  {Request{URL: "http://example.com/?" + strings.Repeat("x", sentWholeMax/3), Header: http.Header{"X": {strings.Repeat("x", sentWholeMax/3)}}, Body: make([]byte, sentWholeMax/3)}, false},
	} {
		c.request.Method = http.MethodPost
		r, err := build(t.Context(), c.request)
		require.NoError(t, err, name)
		require.Equal(t, c.small, isSmall(r), name)
	}
}

// Connections that nobody uses are closed after a while, and there are only so
// many of them.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	server, client, n := counted(t, func(http.ResponseWriter, *http.Request) {})
	get(t, client, server.URL)
	tr := client.transport
	tr.mu.Lock()
	tr.idle[server.URL][0].idleSince = time.Now().Add(-idleTimeout - time.Second)
	tr.mu.Unlock()
	tr.sweep()
	require.Zero(t, tr.keeps())
	get(t, client, server.URL)
	require.EqualValues(t, 2, n.Load())

	tr.mu.Lock()
	old := tr.idle[server.URL][0]
	old.idleSince = time.Now().Add(-idleTimeout - time.Second)
	tr.mu.Unlock()
	get(t, client, server.URL)
	require.EqualValues(t, 3, n.Load(), "an old one is not used before it is swept either")

	for i := range 2*idleConnsMax + 1 {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
		tr.keep(newConnection(tr, fmt.Sprint("http://many.example:", i%2), ours))
	}
	for origin, kept := range tr.idle {
		require.LessOrEqual(t, len(kept), idleConnsMaxByHost, origin)
	}
	for i := range idleConnsMax {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
		tr.keep(newConnection(tr, fmt.Sprint("http://", i), ours))
	}
	require.Len(t, tr.idle, idleConnsMax, "the newest are kept")
	require.Equal(t, idleConnsMax, tr.keeps())
	require.Nil(t, tr.takeIdle("http://1"), "what cannot be looked at is not used")
	require.Len(t, tr.idle, idleConnsMax-1)
	require.Equal(t, tr.keeps(), tr.kept)
}

// The answer of many requests at the same time is each one's own, also while the
// server closes connections as it likes, and callers go away.
func TestAnswersAreTheRequestsOwn(t *testing.T) {
	t.Parallel()
	server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		id := r.URL.Query().Get("id")
		switch id[len(id)-1] {
		case '3':
			w.Header().Set("Connection", "close")
		case '5':
			time.Sleep(20 * time.Millisecond)
		case '7':
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, id)
	})
	var group sync.WaitGroup
	for worker := range 20 {
		group.Go(func() {
			for i := range 50 {
				id := fmt.Sprintf("%d-%d", worker, i)
				ctx, cancel := context.WithCancel(t.Context())
				if i%10 == 5 {
					time.AfterFunc(time.Duration(i)*100*time.Microsecond, cancel)
				}
				answer, err := client.Do(ctx, Request{Method: http.MethodGet, URL: server.URL + "/?id=" + id})
				cancel()
				if errors.Is(err, context.Canceled) {
					continue
				}
				require.NoError(t, err)
				require.Equal(t, id, string(answer.Body))
			}
		})
	}
	group.Wait()
}

// A request whose caller has gone ends its connection.
func TestCancellationClosesTheConnection(t *testing.T) {
	t.Parallel()
	arrived, gone := make(chan struct{}), make(chan struct{})
	server, client := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err := client.Do(ctx, Request{Method: http.MethodGet, URL: server.URL})
	require.ErrorIs(t, err, context.Canceled)
	<-gone
	require.Zero(t, client.transport.keeps())
}

// Over TLS the server chooses the protocol, and its certificate must be one that
// is trusted for its name.
func TestTLS(t *testing.T) {
	t.Parallel()
	for _, isHTTP2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2=%v", isHTTP2), func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, r.Proto)
			}))
			server.EnableHTTP2 = isHTTP2
			n := connections(server)
			server.StartTLS()
			t.Cleanup(server.Close)
			client := openTo(t, server)
			trusted := x509.NewCertPool()
			trusted.AddCert(server.Certificate())
			client.transport.tls.RootCAs, client.transport.other.TLSClientConfig.RootCAs = trusted, trusted
			want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[isHTTP2]
			for range 3 {
				require.Equal(t, want, string(get(t, client, server.URL).Body))
				_, err := client.Do(t.Context(), Request{Method: http.MethodPost, URL: server.URL, Body: make([]byte, 1<<20)})
				require.NoError(t, err)
			}
			require.EqualValues(t, 2, n.Load(), "one of its own and one of net/http's")

			other := openTo(t, server)
			other.transport.tls.RootCAs, other.transport.tls.ServerName = trusted, "example.com"
			_, err := other.Do(t.Context(), Request{Method: http.MethodGet, URL: strings.Replace(server.URL, "127.0.0.1", "localhost", 1)})
			requireReason(t, Unreachable, err) // the certificate is for other names
		})
	}
}

// corked keeps what is written until it sends all of it together.
type corked struct {
	net.Conn
	mu     sync.Mutex
	isOpen bool
	kept   []byte
}

func (c *corked) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isOpen {
		return c.Conn.Write(p)
	}
	c.kept = append(c.kept, p...)
	return len(p), nil
}

func (c *corked) open(isOpen bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isOpen = isOpen; isOpen {
		_, _ = c.Conn.Write(c.kept)
		c.kept = nil
	}
}

// What TLS has read from the socket and nobody has asked for is no answer to the
// next request either.
func TestUnaskedAnswersOverTLSAreNotTaken(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS() // for its certificate
	t.Cleanup(server.Close)
	address := listen(t, func(conn net.Conn) {
		cork := &corked{Conn: conn, isOpen: true}
		secured := tls.Server(cork, &tls.Config{Certificates: server.TLS.Certificates})
		in := bufio.NewReader(secured)
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			cork.open(false)
			for _, record := range []string{"ok", "forged"} {
				_, _ = fmt.Fprintf(secured, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(record), record)
			}
			cork.open(true)
		}
	})
	client := openAt(t, address)
	client.transport.tls.RootCAs = x509.NewCertPool()
	client.transport.tls.RootCAs.AddCert(server.Certificate())
	for range 5 {
		require.Equal(t, "ok", string(get(t, client, "https://"+address).Body))
	}
}

// A large body is sent while the answer is looked for: who refuses it early is
// heard.
func TestLargeBodiesAreRefusedEarly(t *testing.T) {
	t.Parallel()
	url, client := raw(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
		time.Sleep(100 * time.Millisecond)
	})
	answer, err := client.Do(t.Context(), Request{Method: http.MethodPost, URL: url, Body: make([]byte, 64<<20), Timeout: 20 * time.Second})
	require.NoError(t, err)
	require.Equal(t, http.StatusRequestEntityTooLarge, answer.Status)
}
