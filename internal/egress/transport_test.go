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
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// connections counts the connections of a client.
type connections struct {
	opened, closed atomic.Int64
}

type countedConn struct {
	net.Conn
	close func()
}

func (c countedConn) Close() error {
	c.close()
	return c.Conn.Close()
}

// count returns the counts of the connections that client makes from now on.
func count(client *Client) *connections {
	c, dial := &connections{}, client.transport.DialContext
	client.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c.opened.Add(1)
		return countedConn{conn, sync.OnceFunc(func() { c.closed.Add(1) })}, nil
	}
	return c
}

// awaitClosed waits until the client has closed n connections.
func (c *connections) awaitClosed(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return c.closed.Load() == int64(n) }, 30*time.Second, time.Millisecond, "closed connections")
}

func get(t *testing.T, client *Client, url string) *Response {
	t.Helper()
	response, err := client.Do(t.Context(), Request{Method: http.MethodGet, URL: url})
	require.NoError(t, err)
	return response
}

func TestConnectionReuse(t *testing.T) {
	t.Parallel()
	server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/chunked":
			_, _ = io.WriteString(w, "a")
			_ = http.NewResponseController(w).Flush()
			w.Header().Set(http.TrailerPrefix+"Sum", "1")
			_, _ = io.WriteString(w, "b")
		case "/no-content":
			w.WriteHeader(http.StatusNoContent)
		case "/not-modified":
			w.WriteHeader(http.StatusNotModified)
		case "/early-hints":
			w.Header().Set("Link", "</a>")
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.WriteString(w, "late")
		case "/gzip":
			w.Header().Set("Content-Encoding", "GZIP")
			compressed := gzip.NewWriter(w)
			_, _ = io.WriteString(compressed, "decompressed")
			_ = compressed.Close()
		case "/gzip-empty":
			w.Header().Set("Content-Encoding", "gzip")
		default:
			_, _ = io.WriteString(w, r.Header.Get("Accept-Encoding"))
		}
	})
	counts := count(client)
	for range 2 {
		for path, want := range map[string]string{
			"/": "gzip", "/chunked": "ab", "/no-content": "", "/not-modified": "", "/early-hints": "late", "/gzip": "decompressed", "/gzip-empty": "",
		} {
			response := get(t, client, server.URL+path)
			require.Equal(t, want, string(response.Body), path)
			require.Empty(t, response.Header.Get("Content-Encoding"), path)
		}
		response, err := client.Do(t.Context(), Request{Method: http.MethodHead, URL: server.URL + "/gzip"})
		require.NoError(t, err)
		require.Equal(t, "GZIP", response.Header.Get("Content-Encoding"), "a response to HEAD has nothing to decompress")
		response, err = client.Do(t.Context(), Request{Method: http.MethodGet, URL: server.URL, Header: http.Header{"Range": {"bytes=0-1"}}})
		require.NoError(t, err)
		require.Empty(t, response.Body, "a request for a range accepts no compression")
		_, err = client.Do(t.Context(), Request{Method: http.MethodPost, URL: server.URL, Body: make([]byte, 100<<10)})
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, counts.opened.Load())
	client.Close()
	counts.awaitClosed(t, 1)
}

// If it is not certain where the next response begins, the connection is closed.
func TestNoConnectionReuseAfterUnclearEnd(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"Connection: close":   "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.0":            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"second response":     "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
		"bytes after body":    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok\r\n",
		"switching protocols": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
		"no length":           "HTTP/1.1 200 OK\r\n\r\nok",
		"status below 100":    "HTTP/1.1 099 None\r\nContent-Length: 45\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hold := make(chan struct{})
			defer close(hold)
			url, client := raw(t, func(conn net.Conn) {
				_, _ = io.WriteString(conn, answer)
				if !strings.HasPrefix(name, "no length") {
					<-hold // the client closes the connection, not the server
				}
			})
			counts := count(client)
			for i := range 2 {
				response, err := client.Do(t.Context(), Request{Method: http.MethodGet, URL: url})
				if name == "status below 100" {
					requireReason(t, Broken, err)
				} else {
					require.NoError(t, err)
					require.NotContains(t, string(response.Body), "forged")
				}
				counts.awaitClosed(t, i+1)
			}
		})
	}
	t.Run("body above the limit", func(t *testing.T) {
		t.Parallel()
		server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		counts := count(client)
		_, err := client.Do(t.Context(), Request{Method: http.MethodGet, URL: server.URL, ResponseBytesMax: 10})
		requireReason(t, TooLarge, err)
		counts.awaitClosed(t, 1)
	})
}

// A response that arrives on an idle connection must not answer the next request.
func TestUnsolicitedResponse(t *testing.T) {
	t.Parallel()
	forge := make(chan struct{})
	url, client := raw(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		<-forge
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
		_, _ = io.Copy(io.Discard, conn)
	})
	counts := count(client)
	for i := range 2 {
		require.Equal(t, "ok", string(get(t, client, url).Body))
		forge <- struct{}{}
		counts.awaitClosed(t, i+1)
	}
}

// If the server closes an idle connection, the next request uses another one. So even a
// POST is not lost.
func TestIdleConnectionClosedByServer(t *testing.T) {
	t.Parallel()
	url, client := raw(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") // then it closes the connection
	})
	counts := count(client)
	for i := range 3 {
		_, err := client.Do(t.Context(), Request{Method: http.MethodPost, URL: url, Body: []byte("pay")})
		require.NoError(t, err)
		counts.awaitClosed(t, i+1)
	}
}

// If a reused connection ends instead of answering, a request is sent again only if its
// method is idempotent.
func TestRepeatOnBrokenConnection(t *testing.T) {
	t.Parallel()
	const idle = 5 // more than one idle connection could repeat the request
	key := http.Header{"Idempotency-Key": {"a"}, "X-Idempotency-Key": {"b"}}
	for name, c := range map[string]struct {
		request    Request
		isSentOnce bool
	}{
		"GET":                 {Request{Method: http.MethodGet}, false},
		"HEAD":                {Request{Method: http.MethodHead}, false},
		"PUT":                 {Request{Method: http.MethodPut, Header: key, Body: []byte("pay")}, false},
		"DELETE":              {Request{Method: http.MethodDelete, Header: key}, false},
		"POST":                {Request{Method: http.MethodPost, Header: key, Body: []byte("pay")}, true},
		"POST without a key":  {Request{Method: http.MethodPost, Body: []byte("pay")}, true},
		"POST without a body": {Request{Method: http.MethodPost, Header: key}, true},
		"large POST":          {Request{Method: http.MethodPost, Header: key, Body: make([]byte, 1<<20)}, true},
		"PATCH":               {Request{Method: http.MethodPatch, Header: key, Body: []byte("pay")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			var together sync.WaitGroup
			together.Add(idle)
			address := listen(t, func(conn net.Conn) { // answers one request and ends the connection at the next
				in := bufio.NewReader(conn)
				for n := range 2 {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					requests.Add(1)
					if n == 0 {
						if r.URL.Path == "/together" {
							together.Done()
							together.Wait()
						}
						_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
					}
				}
			})
			client := openAt(t, address)
			var group sync.WaitGroup
			for range idle {
				group.Go(func() {
					_, err := client.Do(t.Context(), Request{Method: http.MethodGet, URL: "http://" + address + "/together"})
					require.NoError(t, err)
				})
			}
			group.Wait()
			before := requests.Load()
			c.request.URL = "http://" + address
			_, err := client.Do(t.Context(), c.request)
			if c.isSentOnce {
				requireReason(t, Broken, err)
				require.EqualValues(t, 1, requests.Load()-before)
			} else {
				require.NoError(t, err)
				require.Greater(t, requests.Load()-before, int64(1))
			}
		})
	}
}

// After the first byte of the response, a GET is not sent again.
func TestNoRepeatAfterResponseBegan(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	address := listen(t, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			asked <- r.URL.Path
			if r.URL.Path == "/cut" {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-")
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	client := openAt(t, address)
	get(t, client, "http://"+address+"/whole")
	_, err := client.Do(t.Context(), Request{Method: http.MethodGet, URL: "http://" + address + "/cut"})
	requireReason(t, Broken, err)
	require.Len(t, asked, 2)
}

func TestIdempotencyKeyIsCanonicalOnTheWire(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]Request{
		"GET":                 {Method: http.MethodGet},
		"POST":                {Method: http.MethodPost, Body: []byte("{}")},
		"POST without a body": {Method: http.MethodPost},
		"POST with redirects": {Method: http.MethodPost, Body: []byte("{}"), Redirects: 1},
	} {
		for _, spelling := range []string{"Idempotency-Key", "idempotency-key"} {
			sent := make(chan string, 1)
			address := listen(t, func(conn net.Conn) {
				buffer := make([]byte, 4096)
				n, _ := conn.Read(buffer)
				sent <- string(buffer[:n])
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			})
			request.URL = "http://" + address
			request.Header = http.Header{spelling: {"e1/score"}, "X-Own": {"x"}}
			_, err := openAt(t, address).Do(t.Context(), request)
			require.NoError(t, err)
			require.Contains(t, <-sent, "\r\nIdempotency-Key: e1/score\r\n", name)
		}
	}
}

func TestNoRequestAfterCancellation(t *testing.T) {
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

// 1,000 concurrent calls to one host reuse their connections. Idle connections are closed
// after a few seconds.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const calls = 1000
		client := New(nil)
		client.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				in := bufio.NewReader(theirs)
				for {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					time.Sleep(20 * time.Millisecond)
					_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}()
			return ours, nil
		}
		counts := count(client)
		for range 3 {
			var group sync.WaitGroup
			for range calls {
				group.Go(func() { get(t, client, "http://bureau.example/") })
			}
			group.Wait()
		}
		require.EqualValues(t, calls, counts.opened.Load())
		require.Zero(t, counts.closed.Load())
		time.Sleep(idleTimeout + time.Second)
		require.EqualValues(t, calls, counts.closed.Load())
	})
}

// Concurrent requests receive their own responses, even if the server closes connections
// and callers cancel.
func TestConcurrentRequests(t *testing.T) {
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
				response, err := client.Do(ctx, Request{Method: http.MethodGet, URL: server.URL + "/?id=" + id})
				cancel()
				if errors.Is(err, context.Canceled) {
					continue
				}
				require.NoError(t, err)
				require.Equal(t, id, string(response.Body))
			}
		})
	}
	group.Wait()
}

// Do returns the cause of the caller's cancellation and closes the connection.
func TestCancellation(t *testing.T) {
	t.Parallel()
	arrived, gone := make(chan struct{}), make(chan struct{})
	server, client := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(gone)
	})
	counts := count(client)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("stopped")
	go func() {
		<-arrived
		cancel(cause)
	}()
	_, err := client.Do(ctx, Request{Method: http.MethodGet, URL: server.URL})
	require.ErrorIs(t, err, cause)
	<-gone
	counts.awaitClosed(t, 1)
}

// trust makes client accept the certificate of server.
func trust(client *Client, server *httptest.Server) {
	client.transport.TLSClientConfig.RootCAs = x509.NewCertPool()
	client.transport.TLSClientConfig.RootCAs.AddCert(server.Certificate())
}

// The server chooses the protocol. Its certificate must be valid for its name.
func TestTLS(t *testing.T) {
	t.Parallel()
	for _, want := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, r.Proto)
			}))
			server.EnableHTTP2 = want == "HTTP/2.0"
			server.StartTLS()
			t.Cleanup(server.Close)
			client := openTo(t, server)
			trust(client, server)
			counts := count(client)
			for range 3 {
				require.Equal(t, want, string(get(t, client, server.URL).Body))
				_, err := client.Do(t.Context(), Request{Method: http.MethodPost, URL: server.URL, Body: make([]byte, 1<<20)})
				require.NoError(t, err)
			}
			require.EqualValues(t, 1, counts.opened.Load())

			_, err := openTo(t, server).Do(t.Context(), Request{Method: http.MethodGet, URL: server.URL})
			requireReason(t, Unreachable, err) // the certificate is not trusted
			other := openTo(t, server)
			trust(other, server)
			_, err = other.Do(t.Context(), Request{Method: http.MethodGet, URL: strings.Replace(server.URL, "127.0.0.1", "localhost", 1)})
			requireReason(t, Unreachable, err) // the certificate is for other names
		})
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	server.StartTLS()
	t.Cleanup(server.Close)
	client := openTo(t, server)
	trust(client, server)
	_, err := client.Do(t.Context(), Request{Method: http.MethodPost, URL: server.URL, Body: []byte("pay")})
	requireReason(t, Unreachable, err)
	require.ErrorContains(t, err, "protocol version")
}
