package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The bureau answers net/http's client over one connection, and rejects requests that
// workflows do not send.
func TestBureau(t *testing.T) {
	t.Parallel()
	b, err := openBureau(t.Context())
	require.NoError(t, err)
	t.Cleanup(b.close)
	for _, path := range []string{atOncePath, slowPath, atOncePath} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+b.addr+path, nil)
		require.NoError(t, err)
		request.Header.Set("Idempotency-Key", "k")
		began := time.Now()
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode)
		require.Equal(t, "application/json", answer.Header.Get("Content-Type"))
		require.JSONEq(t, bureauAnswer, string(body))
		_, err = http.ParseTime(answer.Header.Get("Date"))
		require.NoError(t, err)
		if path == slowPath {
			require.GreaterOrEqual(t, time.Since(began), slowTime)
		}
	}
	host := "Host: " + b.addr + "\r\n"
	for name, text := range map[string]string{
		"another path":    "GET / HTTP/1.1\r\n" + host + "Idempotency-Key: k\r\n\r\n",
		"another method":  "POST /score HTTP/1.1\r\n" + host + "Idempotency-Key: k\r\n\r\n",
		"another version": "GET /score HTTP/1.0\r\n" + host + "Idempotency-Key: k\r\n\r\n",
		"no key":          "GET /score HTTP/1.1\r\n" + host + "\r\n",
		"an empty key":    "GET /score HTTP/1.1\r\n" + host + "Idempotency-Key: \r\n\r\n",
		"another host":    "GET /score HTTP/1.1\r\nHost: elsewhere\r\nIdempotency-Key: k\r\n\r\n",
		"a body":          "GET /score HTTP/1.1\r\n" + host + "Idempotency-Key: k\r\nContent-Length: 1\r\n\r\nx",
		"no header":       "GET /score HTTP/1.1\r\n" + host + "Idempotency-Key: k\r\nnothing\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", b.addr)
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.Copy(conn, strings.NewReader(text))
			require.NoError(t, err)
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			defer answer.Body.Close()
			require.Equal(t, http.StatusBadRequest, answer.StatusCode)
		})
	}
}
