package egress

import (
	"bufio"
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
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A server that speaks nothing newer than TLS 1.1 is not spoken to, be the request
// small or large.
func TestOldTLSIsRefused(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	server.StartTLS()
	t.Cleanup(server.Close)
	client := openTo(t, server)
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	client.transport.tls.RootCAs, client.transport.other.TLSClientConfig.RootCAs = trusted, trusted
	for _, bytes := range []int{0, 2 * sentWholeMax} {
		_, err := client.Do(t.Context(), Request{Method: http.MethodPost, URL: server.URL, Body: make([]byte, bytes)})
		requireReason(t, Unreachable, err)
		require.ErrorContains(t, err, "protocol version")
	}
}

// A request takes the time that it was given, 60 s by default, 300 s at most.
func TestTimeIsBounded(t *testing.T) {
	t.Parallel()
	for asked, want := range map[time.Duration]time.Duration{
		0: TimeoutDefault, -1: TimeoutDefault, time.Second: time.Second, TimeoutMax: TimeoutMax, TimeoutMax + time.Hour: TimeoutMax,
	} {
		client, before := New(nil), time.Now()
		var deadline time.Time
		client.transport.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			deadline, _ = ctx.Deadline()
			return nil, errors.New("no")
		}
		_, err := client.Do(t.Context(), Request{Method: http.MethodGet, URL: "http://example.com/", Timeout: asked})
		requireReason(t, Unreachable, err)
		require.WithinRange(t, deadline, before.Add(want), time.Now().Add(want), "asked for %s", asked)
	}
}

// An answer has as many bytes as was asked and 5 MiB at most, whether or not it
// announces them.
func TestBytesOfAnswersAreBounded(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		asked int64
		bytes int
		fits  bool
	}{
		{0, ResponseBytesMax, true},
		{0, ResponseBytesMax + 1, false},
		{2 * ResponseBytesMax, ResponseBytesMax + 1, false},
		{10, 10, true},
		{10, 11, false},
	} {
		for _, announced := range []bool{true, false} {
			server, client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if announced {
					w.Header().Set("Content-Length", fmt.Sprint(tc.bytes))
				} else {
					w.WriteHeader(http.StatusOK)
					_ = http.NewResponseController(w).Flush()
				}
				_, _ = w.Write(make([]byte, tc.bytes))
			})
			answer, err := client.Do(t.Context(), Request{Method: http.MethodGet, URL: server.URL, ResponseBytesMax: tc.asked})
			if tc.fits {
				require.NoError(t, err)
				require.Len(t, answer.Body, tc.bytes)
			} else {
				requireReason(t, TooLarge, err)
			}
		}
	}
}

// The headers of an answer take 64 KiB at most, and five interim answers may come
// before it.
func TestHeadersOfAnswersAreBounded(t *testing.T) {
	t.Parallel()
	const end = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	header := func(bytes int) string {
		return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: " + strings.Repeat("x", bytes) + "\r\n\r\n"
	}
	for name, tc := range map[string]struct {
		text string
		fits bool
	}{
		"60 KiB":             {header(60 << 10), true},
		"65 KiB":             {header(65 << 10), false},
		"5 interim answers":  {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 5) + end, true},
		"6 interim answers":  {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 6) + end, false},
		"interim and 65 KiB": {"HTTP/1.1 103 Early Hints\r\nX: " + strings.Repeat("x", 33<<10) + "\r\n\r\n" + header(33<<10), false},
	} {
		address, client := raw(t, func(conn net.Conn) {
			_, _ = io.WriteString(conn, tc.text)
		})
		_, err := client.Do(t.Context(), Request{Method: http.MethodGet, URL: address})
		if tc.fits {
			require.NoError(t, err, name)
		} else {
			requireReason(t, Broken, err)
		}
	}
}

// A server that takes a connection and never answers to TLS costs 5 s.
func TestHandshakesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := New(nil)
		client.transport.dial = func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, far) }()
			return near, nil
		}
		before := time.Now()
		_, err := client.Do(t.Context(), Request{Method: http.MethodGet, URL: "https://example.com/"})
		requireReason(t, Unreachable, err)
		require.Equal(t, 5*time.Second, time.Since(before))
	})
}

// A GET is not sent again once something of its answer has come.
func TestGetIsNotRepeatedAfterAnAnswerBegan(t *testing.T) {
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
