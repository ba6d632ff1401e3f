package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A request has the time that the caller asks for: 60 s by default, 300 s at most.
func TestTimeout(t *testing.T) {
	t.Parallel()
	for asked, want := range map[time.Duration]time.Duration{
		0: TimeoutDefault, -1: TimeoutDefault, time.Second: time.Second, TimeoutMax: TimeoutMax, TimeoutMax + time.Hour: TimeoutMax,
	} {
		synctest.Test(t, func(t *testing.T) {
			client, began := New(nil), time.Now()
			hang := make(chan struct{})
			defer close(hang)
			client.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
				<-hang
				return nil, errors.New("too late")
			}
			_, err := client.Do(t.Context(), Request{Method: http.MethodGet, URL: "http://example.com/", Timeout: asked})
			requireReason(t, Unreachable, err)
			require.Equal(t, want, time.Since(began), "asked for %s", asked)
		})
	}
}

// The limit of a body is 5 MiB, or less if the caller asks for less, with and without a
// Content-Length.
func TestBodyLimit(t *testing.T) {
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

// The headers of a response and of all interim responses before it take 64 KiB at most.
func TestHeaderLimit(t *testing.T) {
	t.Parallel()
	header := func(bytes int) string {
		return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: " + strings.Repeat("x", bytes) + "\r\n\r\n"
	}
	interim := func(bytes int) string {
		return "HTTP/1.1 103 Early Hints\r\nX: " + strings.Repeat("x", bytes) + "\r\n\r\n"
	}
	for name, tc := range map[string]struct {
		text string
		fits bool
	}{
		"60 KiB":                            {header(60 << 10), true},
		"65 KiB":                            {header(65 << 10), false},
		"5 interim responses":               {strings.Repeat(interim(0), 5) + header(0), true},
		"interim responses of 65 KiB":       {strings.Repeat(interim(1<<10), 65) + header(0), false},
		"33 KiB after an interim of 33 KiB": {interim(33<<10) + header(33<<10), false},
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

// A server that accepts a connection but never answers the TLS handshake costs 5 s.
func TestHandshakeTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := New(nil)
		client.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
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
