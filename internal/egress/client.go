// Package egress sends requests to addresses that tenants give. It refuses
// every address that is not public unless the operator opened it, and bounds
// the time and memory that a request may cost whatever the other side does. It must
// not know workflows, tasks or tenants.
package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Limits of one request.
const (
	dialTimeout        = 5 * time.Second // name resolution included
	tlsTimeout         = 5 * time.Second
	responseHeadersMax = 64 << 10

	// TimeoutDefault and TimeoutMax bound the whole exchange.
	TimeoutDefault = 60 * time.Second
	TimeoutMax     = 300 * time.Second

	// ResponseBytesMax bounds a response body, counted after decompression.
	ResponseBytesMax = 5 << 20

	// RedirectsMax is how many redirects a request can follow.
	RedirectsMax = 3
)

// Request is what to send.
type Request struct {
	Method string
	URL    string
	Header http.Header
	Body   []byte // nil sends none

	// ResponseBytesMax lowers the limit of the response body; 0 leaves it at
	// the package's ResponseBytesMax, which nothing exceeds.
	ResponseBytesMax int64
	// Timeout bounds the whole exchange; 0 means TimeoutDefault, more than
	// TimeoutMax means TimeoutMax.
	Timeout time.Duration
	// Redirects is how many redirects are followed, at most RedirectsMax. One that
	// leads to another origin carries none of the caller's headers that could hold
	// a credential.
	Redirects int
}

// Response is a complete answer.
type Response struct {
	Status int
	Header http.Header
	Body   []byte // decompressed
}

// Client sends requests. It follows no redirects but those that a request asks
// for, and uses no proxy. It is safe for concurrent use.
type Client struct {
	http      *http.Client
	transport *transport

	clock func() time.Time // nil before Report
	ended func(outcome string, took time.Duration)
}

// New returns a client that reaches public addresses and those that are open
// by exception.
func New(open Exceptions) *Client {
	dialer := &net.Dialer{Timeout: dialTimeout, Control: guard(open)}
	// No proxy: it would connect where the guard does not see.
	t := &transport{dial: dialer.DialContext, tls: &tls.Config{MinVersion: tls.VersionTLS12}, other: &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    tlsTimeout,
		MaxResponseHeaderBytes: responseHeadersMax,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // what is packed is unpacked here
		IdleConnTimeout:        idleTimeout,
		MaxIdleConns:           idleConnsMax,
		MaxIdleConnsPerHost:    idleConnsMaxByHost,
	}}
	return &Client{transport: t, http: &http.Client{Transport: t, CheckRedirect: redirect}}
}

// Report has ended told of every request and how long it took: of an answer the class
// of its status ("2xx"), else the Reason, or "cancelled". It is called before the
// first Do.
func (c *Client) Report(clock func() time.Time, ended func(outcome string, took time.Duration)) {
	c.clock, c.ended = clock, ended
}

// Close closes the connections that are kept for later requests.
func (c *Client) Close() { c.transport.close() }

// Do sends a request and reads the whole answer, of whatever status. An error
// is an *Error, or the context's own when the caller cancelled.
func (c *Client) Do(ctx context.Context, req Request) (response *Response, err error) {
	if c.ended != nil {
		begun := c.clock()
		defer func() { c.ended(outcome(response, err), c.clock().Sub(begun)) }()
	}
	timeout := min(req.Timeout, TimeoutMax)
	if timeout <= 0 {
		timeout = TimeoutDefault
	}
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	p := &progress{redirects: min(req.Redirects, RedirectsMax)}
	httpRequest, err := build(context.WithValue(bounded, progressKey{}, p), req)
	if err != nil {
		return nil, &Error{Reason: Malformed, cause: err}
	}
	response, err = c.exchange(httpRequest, req.ResponseBytesMax)
	if err != nil {
		err = classify(ctx, bounded, err, p.isConnected.Load())
	}
	if report, ok := ctx.Value(observerKey{}).(func(string, bool)); ok && ctx.Err() == nil {
		if refused, ok := errors.AsType[*Error](err); !ok || refused.Reason != Refused {
			report(httpRequest.URL.Host, p.isConnected.Load())
		}
	}
	return response, err
}

// outcome names what came of a request.
func outcome(response *Response, err error) string {
	failed, isFailed := errors.AsType[*Error](err)
	switch {
	case isFailed:
		return string(failed.Reason)
	case response == nil:
		return "cancelled"
	default:
		return strconv.Itoa(response.Status/100) + "xx"
	}
}

// progress is what the context of a request knows of it.
type progress struct {
	redirects   int // that may be followed
	isConnected atomic.Bool
}

type progressKey struct{}

// progressOf is that of a request which Do made.
func progressOf(ctx context.Context) *progress {
	p, _ := ctx.Value(progressKey{}).(*progress)
	return p
}

type observerKey struct{}

// Observe returns a context under which report is told of every request that
// ends otherwise than by the context or the guard: to which host, with its port if it has
// one, and whether a connection could be made.
func Observe(ctx context.Context, report func(host string, connected bool)) context.Context {
	return context.WithValue(ctx, observerKey{}, report)
}

func build(ctx context.Context, req Request) (*http.Request, error) {
	u, err := url.Parse(req.URL)
	if err != nil {
		return nil, errors.New("the address cannot be read")
	}
	if err := CheckURL(u); err != nil {
		return nil, fmt.Errorf("the address %w", err)
	}
	var body io.Reader
	if req.Body != nil {
		body = bytes.NewReader(req.Body)
	}
	r, err := http.NewRequestWithContext(ctx, req.Method, req.URL, body)
	if err != nil {
		return nil, err
	}
	for name, values := range req.Header {
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			return nil, errors.New("a header has no valid name")
		case HeaderRefused(name):
			return nil, fmt.Errorf("the header %s must not be set", http.CanonicalHeaderKey(name))
		case slices.ContainsFunc(values, func(value string) bool { return !httpguts.ValidHeaderFieldValue(value) }):
			return nil, fmt.Errorf("the header %s has no valid value", http.CanonicalHeaderKey(name))
		}
		name = http.CanonicalHeaderKey(name)
		if !idempotent(req.Method) && (name == "Idempotency-Key" || name == "X-Idempotency-Key") {
			// net/http repeats by itself a request that was sent in full and got no
			// answer when it finds this header under its canonical name. Repeating
			// is the caller's decision, so the name is sent in lower case, which
			// means the same to every server and nothing to net/http.
			name = strings.ToLower(name)
		}
		r.Header[name] = values
	}
	if r.Method != http.MethodHead && r.Header.Get("Range") == "" {
		r.Header.Set(headerAcceptEncoding, encodingGzip)
	}
	return r, nil
}

// idempotent reports whether RFC 9110, section 9.2.2, lets a method be
// repeated when no answer came.
func idempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

func (c *Client) exchange(req *http.Request, bytesMax int64) (*Response, error) {
	if bytesMax <= 0 || bytesMax > ResponseBytesMax {
		bytesMax = ResponseBytesMax
	}
	send := c.http.Do
	if progressOf(req.Context()).redirects <= 0 {
		send = c.transport.RoundTrip // the client's frames would need a larger stack than all else does
	}
	answer, err := send(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	unpacked, err := unpack(answer)
	if err != nil {
		return nil, err
	}
	if answer.ContentLength > bytesMax && req.Method != http.MethodHead {
		return nil, errTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(unpacked, bytesMax+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > bytesMax {
		return nil, errTooLarge
	}
	return &Response{Status: answer.StatusCode, Header: answer.Header, Body: body}, nil
}

const (
	headerAcceptEncoding  = "Accept-Encoding"
	headerContentEncoding = "Content-Encoding"
	encodingGzip          = "gzip"
)

// unpack returns the body of an answer as it was before it was packed on the way,
// and removes from the headers what says that it was.
func unpack(answer *http.Response) (io.Reader, error) {
	isAsked := answer.Request.Header.Get(headerAcceptEncoding) != ""
	if !isAsked || !strings.EqualFold(answer.Header.Get(headerContentEncoding), encodingGzip) {
		return answer.Body, nil
	}
	answer.Header.Del(headerContentEncoding)
	answer.Header.Del("Content-Length")
	answer.ContentLength = -1
	unpacked, err := gzip.NewReader(answer.Body)
	if errors.Is(err, io.EOF) {
		return answer.Body, nil // there is none
	}
	return unpacked, err
}
