package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// Limits of idle connections. A batch makes up to 1,000 concurrent calls to one host.
// Common servers close an idle connection after 5 s; closing it earlier means that a
// request seldom meets a connection that is about to end.
const (
	idleTimeout         = 4 * time.Second
	idleConnsMax        = 4096
	idleConnsMaxPerHost = 1024
)

var errNotRepeated = errors.New("the connection ended before the response began, and the method does not allow a repetition")

// transport is net/http's Transport, except that it sends a request at most once if
// its method is not idempotent.
type transport struct {
	*http.Transport
}

func newTransport(dial func(ctx context.Context, network, address string) (net.Conn, error)) *transport {
	return &transport{&http.Transport{
		DialContext:            dial, // no Proxy: the guard would not see the address that a proxy connects to
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    tlsTimeout,
		MaxResponseHeaderBytes: responseHeadersMax, // including interim responses
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // decompress counts the bytes of the decompressed body
		IdleConnTimeout:        idleTimeout,
		MaxIdleConns:           idleConnsMax,
		MaxIdleConnsPerHost:    idleConnsMaxPerHost,
	}}
}

// RoundTrip sends a request and returns the response.
//
// If a reused HTTP/1 connection ends before the response begins, net/http sends the request
// again over another connection, even a POST if it has an Idempotency-Key. The server may
// have acted on a POST, and only the caller knows whether to repeat it. So RoundTrip closes
// the connection that net/http is about to repeat it on. HTTP/2 needs no such care:
// net/http repeats only requests that the server has declared unprocessed.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, abandon := context.WithCancelCause(r.Context())
	var isWritten atomic.Bool
	trace := &httptrace.ClientTrace{
		WroteHeaders: func() { isWritten.Store(true) },
		GotConn: func(info httptrace.GotConnInfo) {
			progressOf(ctx).isConnected.Store(true)
			if isWritten.Load() && !isIdempotent(r.Method) && !isHTTP2(info.Conn) {
				abandon(errNotRepeated)
				_ = info.Conn.Close()
			}
		},
	}
	return t.Transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, trace)))
}

// isIdempotent reports whether RFC 9110, section 9.2.2, allows a repetition when
// there was no response.
func isIdempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

func isHTTP2(conn net.Conn) bool {
	secured, ok := conn.(*tls.Conn)
	return ok && secured.ConnectionState().NegotiatedProtocol == "h2"
}
