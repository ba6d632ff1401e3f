package egress

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// openTo returns a client that may reach only the address and the port of server.
func openTo(t *testing.T, server *httptest.Server) *Client {
	t.Helper()
	return openAt(t, server.Listener.Addr().String())
}

func openAt(t *testing.T, address string) *Client {
	t.Helper()
	open, err := ParseAllow(address)
	require.NoError(t, err)
	client := New(open)
	t.Cleanup(client.Close)
	return client
}

// listen calls serve for each connection and returns the address.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

func serve(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *Client) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server, openTo(t, server)
}

// raw calls answer after the request on each connection. It is for responses that no HTTP
// library would send.
func raw(t *testing.T, answer func(net.Conn)) (string, *Client) {
	t.Helper()
	address := listen(t, func(conn net.Conn) {
		buffer := make([]byte, 4096)
		if _, err := conn.Read(buffer); err == nil {
			answer(conn)
		}
	})
	return "http://" + address + "/", openAt(t, address)
}

func requireReason(t *testing.T, want Reason, err error) {
	t.Helper()
	var failed *Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, want, failed.Reason, err.Error())
}

func TestDo(t *testing.T) {
	t.Parallel()
	server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Idempotency-Key")+" "+string(body))
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "short and stout")
	})
	answer, err := client.Do(t.Context(), Request{
		Method: "POST", URL: server.URL + "/a%2Fb/c?x=1%202", Header: http.Header{"Idempotency-Key": {"k/1"}}, Body: []byte("hello"),
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusTeapot, answer.Status)
	require.Equal(t, "POST /a%2Fb/c?x=1%202 k/1 hello", answer.Header.Get("X-Seen"))
	require.Equal(t, "short and stout", string(answer.Body))
}

// canary counts the connections to an address that no request may reach.
func canary(t *testing.T, address string) (port string, connections *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("cannot listen on %s: %v", address, err)
	}
	t.Cleanup(func() { listener.Close() })
	connections = &atomic.Int64{}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			conn.Close()
		}
	}()
	_, port, err = net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port, connections
}

func TestInternalAddressesAreRefused(t *testing.T) {
	t.Parallel()
	port, connections := canary(t, "0.0.0.0:0") // every IPv4 address of this machine
	client := New(nil)
	for _, host := range []string{
		"127.0.0.1", "127.1", "127.0.1", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "2130706433", "127.255.255.254", "0.0.0.0", "0",
		"localhost", "localhost.", "LOCALHOST", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]",
		"[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[fe80::1]", "[fe80::1%25lo]",
		"[fc00::1]", "[fd00::1]", "[ff02::1]", "[2001:db8::1]", "[100::1]", "10.0.0.1", "172.16.0.1", "192.168.0.1",
		"100.64.0.1", "169.254.169.254", "198.18.0.1", "224.0.0.1", "255.255.255.255", "①②⑦.⓪.⓪.①", "127。0。0。1",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := client.Do(ctx, Request{Method: "GET", URL: "http://" + host + ":" + port + "/"})
		cancel()
		require.Error(t, err, host)
		var failed *Error
		require.ErrorAs(t, err, &failed, host)
		require.Contains(t, []Reason{Refused, Unreachable, Malformed}, failed.Reason, host) // some names do not resolve
	}
	require.Zero(t, connections.Load())
}

func TestGuard(t *testing.T) {
	t.Parallel()
	open, err := ParseAllow("127.0.0.1/32:8081")
	require.NoError(t, err)
	check := guard(open)
	for address, want := range map[string]bool{
		"93.184.215.14:443":                true,
		"93.184.215.14:22":                 true, // any port of a public address
		"[2606:2800:21f:cb07::1]:8443":     true,
		"127.0.0.1:8081":                   true,
		"127.0.0.1:80":                     false,
		"[::ffff:93.184.215.14]:80":        false, // no name resolves to a mapped form
		"[64:ff9b::5db8:d70e]:80":          false,
		"169.254.169.254:80":               false,
		"[fd00:ec2::254]:80":               false,
		"100.100.100.200:80":               false,
		"168.63.129.16:80":                 false,
		"168.63.129.17:80":                 true,
		"[2002:a00:1::]:80":                false,
		"192.0.2.1:80":                     false,
		"not an address":                   false,
		"[::ffff:127.0.0.1]:8081":          true, // the operator's exception, whatever its form
		"[0:0:0:0:0:ffff:7f00:0001]:65535": false,
	} {
		network := "tcp4"
		if strings.HasPrefix(address, "[") {
			network = "tcp6"
		}
		require.Equal(t, want, check(network, address, nil) == nil, address)
	}
	require.ErrorIs(t, check("udp4", "127.0.0.1:8081", nil), errRefused)
}

// The guard checks the address that the connection uses, so a name that resolves to a private
// address later gains nothing. The resolver is the attacker's.
func TestDNSRebindingIsRefused(t *testing.T) {
	t.Parallel()
	port, connections := canary(t, "127.0.0.1:0")
	client := New(nil)
	var lookups atomic.Int64
	dialer := &net.Dialer{Control: guard(nil), Timeout: time.Second, Resolver: &net.Resolver{
		PreferGo: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			lookups.Add(1)
			return resolveAllTo(netip.MustParseAddr("127.0.0.1")), nil
		},
	}}
	client.transport.DialContext = dialer.DialContext
	_, err := client.Do(t.Context(), Request{Method: "GET", URL: "http://rebind.example.com:" + port + "/"})
	requireReason(t, Refused, err)
	require.Positive(t, lookups.Load())
	require.Zero(t, connections.Load())
}

func TestProxyVariablesAreIgnored(t *testing.T) {
	port, connections := canary(t, "127.0.0.1:0")
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:"+port)
	t.Setenv("http_proxy", "http://127.0.0.1:"+port)
	_, err := New(nil).Do(t.Context(), Request{Method: "GET", URL: "http://10.0.0.1/"})
	requireReason(t, Refused, err)
	require.Zero(t, connections.Load())
}

func TestMalformedRequestsAreNotSent(t *testing.T) {
	t.Parallel()
	client := New(nil)
	for _, url := range []string{
		"", "/path", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "http://", "http:///path",
		"http://user:secret@example.com/", "http://user@example.com/", "http://exa mple.com/", "http://example.com:port/",
		"http://[::1", "http://example.com/" + strings.Repeat("a", urlBytesMax), "http://example.com/%zz", "http://example.com/\x00",
	} {
		_, err := client.Do(t.Context(), Request{Method: "GET", URL: url})
		requireReason(t, Malformed, err)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, header := range []string{"Host", "content-length", "Transfer-Encoding", "Connection", "Proxy-Authorization", "Proxy-Anything", "TE", "Upgrade", "Trailer", "Accept-Encoding"} {
		_, err := client.Do(t.Context(), Request{Method: "GET", URL: "http://example.com/", Header: http.Header{header: {"x"}}})
		requireReason(t, Malformed, err)
	}
	for _, header := range []http.Header{{"X A": {"x"}}, {"": {"x"}}, {"Authorization ": {"x"}}, {"X": {"a\r\nb: c"}}, {"X": {"a", "b\x00"}}} {
		_, err := client.Do(t.Context(), Request{Method: "GET", URL: "http://example.com/", Header: header})
		requireReason(t, Malformed, err)
	}
	_, err := client.Do(t.Context(), Request{Method: "BAD METHOD", URL: "http://example.com/"})
	requireReason(t, Malformed, err)
}

func TestHostileResponses(t *testing.T) {
	t.Parallel()
	t.Run("endless body", func(t *testing.T) {
		t.Parallel()
		server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			chunk := bytes.Repeat([]byte("x"), 1<<16)
			for {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		})
		_, err := client.Do(t.Context(), Request{Method: "GET", URL: server.URL})
		requireReason(t, TooLarge, err)
	})
	t.Run("announced body", func(t *testing.T) {
		t.Parallel()
		server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "11")
			_, _ = io.WriteString(w, "hello world")
		})
		_, err := client.Do(t.Context(), Request{Method: "GET", URL: server.URL, ResponseBytesMax: 10})
		requireReason(t, TooLarge, err)
		answer, err := client.Do(t.Context(), Request{Method: "GET", URL: server.URL, ResponseBytesMax: 11})
		require.NoError(t, err)
		require.Len(t, answer.Body, 11)
	})
	t.Run("gzip bomb", func(t *testing.T) {
		t.Parallel()
		var bomb bytes.Buffer
		packed, err := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
		require.NoError(t, err)
		zeros := make([]byte, 1<<20)
		for range 64 {
			_, _ = packed.Write(zeros)
		}
		require.NoError(t, packed.Close())
		require.Less(t, bomb.Len(), 1<<20)
		server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = client.Do(t.Context(), Request{Method: "GET", URL: server.URL})
		runtime.ReadMemStats(&after)
		requireReason(t, TooLarge, err)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20)) // other tests allocate beside this one
	})
	t.Run("gzip", func(t *testing.T) {
		t.Parallel()
		server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(w)
			_, _ = io.WriteString(packed, "unpacked")
			_ = packed.Close()
		})
		// That it has more bytes when it is packed does not count.
		answer, err := client.Do(t.Context(), Request{Method: "GET", URL: server.URL, ResponseBytesMax: 8})
		require.NoError(t, err)
		require.Equal(t, "unpacked", string(answer.Body))
		_, err = client.Do(t.Context(), Request{Method: "GET", URL: server.URL, ResponseBytesMax: 7})
		requireReason(t, TooLarge, err)
	})
	t.Run("endless headers", func(t *testing.T) {
		t.Parallel()
		url, client := raw(t, func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
			for i := 0; ; i++ {
				if _, err := fmt.Fprintf(conn, "X-%d: %s\r\n", i, strings.Repeat("y", 1000)); err != nil {
					return
				}
			}
		})
		_, err := client.Do(t.Context(), Request{Method: "GET", URL: url})
		requireReason(t, Broken, err)
	})
	t.Run("endless interim responses", func(t *testing.T) {
		t.Parallel()
		url, client := raw(t, func(conn net.Conn) {
			for {
				if _, err := io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"); err != nil {
					return
				}
			}
		})
		_, err := client.Do(t.Context(), Request{Method: "GET", URL: url})
		requireReason(t, Broken, err)
	})
	t.Run("slow drip", func(t *testing.T) {
		t.Parallel()
		server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, ".")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(20 * time.Millisecond)
			}
		})
		began := time.Now()
		_, err := client.Do(t.Context(), Request{Method: "GET", URL: server.URL, Timeout: 300 * time.Millisecond})
		requireReason(t, TimedOut, err)
		require.Less(t, time.Since(began), 3*time.Second)
	})
	t.Run("late", func(t *testing.T) {
		t.Parallel()
		// The answer begins after 290 s, in the time of the test's bubble.
		for timeout, want := range map[time.Duration]Reason{TimeoutMax: "", 289 * time.Second: TimedOut, 0: TimedOut} {
			synctest.Test(t, func(t *testing.T) {
				client := New(nil)
				client.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
					ours, theirs := net.Pipe()
					go func() {
						defer theirs.Close()
						if _, err := http.ReadRequest(bufio.NewReader(theirs)); err != nil {
							return
						}
						time.Sleep(290 * time.Second)
						_, _ = io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlate")
					}()
					return ours, nil
				}
				defer time.Sleep(TimeoutMax) // until the other side has ended
				began := time.Now()
				answer, err := client.Do(t.Context(), Request{Method: "GET", URL: "http://bureau.example", Timeout: timeout})
				if want != "" {
					requireReason(t, want, err)
					require.Equal(t, cmp.Or(timeout, TimeoutDefault), time.Since(began))
					return
				}
				require.NoError(t, err)
				require.Equal(t, "late", string(answer.Body))
			})
		}
	})
	t.Run("reset", func(t *testing.T) {
		t.Parallel()
		url, client := raw(t, func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
		})
		_, err := client.Do(t.Context(), Request{Method: "GET", URL: url})
		requireReason(t, Broken, err)
	})
	t.Run("no HTTP", func(t *testing.T) {
		t.Parallel()
		url, client := raw(t, func(conn net.Conn) { _, _ = io.WriteString(conn, "220 mail.example.com ESMTP\r\n") })
		_, err := client.Do(t.Context(), Request{Method: "GET", URL: url})
		requireReason(t, Broken, err)
	})
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	listener.Close()
	open, err := ParseAllow(address)
	require.NoError(t, err)
	client := New(open)
	for _, redirects := range []int{0, 1} {
		_, err = client.Do(t.Context(), Request{Method: "GET", URL: "http://" + address + "/?token=hidden", Redirects: redirects})
		requireReason(t, Unreachable, err)
		require.NotContains(t, err.Error(), "hidden")
	}

	server, client := serve(t, func(http.ResponseWriter, *http.Request) {})
	_, err = client.Do(t.Context(), Request{Method: "GET", URL: strings.Replace(server.URL, "http:", "https:", 1)})
	requireReason(t, Unreachable, err) // no TLS, no connection
}

func TestReport(t *testing.T) {
	t.Parallel()
	server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			<-r.Context().Done()
		}
		w.WriteHeader(http.StatusBadGateway)
	})
	var outcomes []string
	client.Report(time.Now, func(outcome string, took time.Duration) {
		require.Positive(t, took)
		outcomes = append(outcomes, outcome)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cancelled, cancelIt := context.WithCancel(ctx)
	time.AfterFunc(50*time.Millisecond, cancelIt)
	for _, c := range []struct {
		ctx context.Context
		url string
	}{
		{ctx, server.URL}, {ctx, "http://169.254.169.254/"}, {ctx, "http://127.0.0.1:1/"}, {ctx, "ftp://example.com"}, {cancelled, server.URL + "/hang"},
	} {
		_, _ = client.Do(c.ctx, Request{Method: http.MethodGet, URL: c.url})
	}
	require.Equal(t, []string{"5xx", "refused", "refused", "malformed", "cancelled"}, outcomes)
}
