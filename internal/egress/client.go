// Package egress sends HTTP requests to addresses that tenants choose. It refuses every
// address that is not public unless the operator has allowed it, and it bounds the time
// and the memory of each request. It must not know workflows, tasks or tenants.
package egress

import (
	"bytes"
	"compress/gzip"
	"context"
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
	dialTimeout        = 5 * time.Second // includes name resolution
	tlsTimeout         = 5 * time.Second
	responseHeadersMax = 64 << 10

	// TimeoutDefault and TimeoutMax bound the whole exchange.
	TimeoutDefault = 60 * time.Second
	TimeoutMax     = 300 * time.Second

	// ResponseBytesMax bounds a response body after decompression.
	ResponseBytesMax = 5 << 20

	// RedirectsMax is the highest number of redirects that a request can follow.
	RedirectsMax = 3
)

// Request is one HTTP request to send.
type Request struct {
	Method string
	URL    string
	Header http.Header
	Body   []byte // nil sends no body

	// ResponseBytesMax lowers the limit of the response body. 0, and any value above
	// the package's ResponseBytesMax, mean the package's limit.
	ResponseBytesMax int64
	// Timeout bounds the whole exchange. 0 means TimeoutDefault; a value above
	// TimeoutMax means TimeoutMax.
	Timeout time.Duration
	// Redirects is the number of redirects to follow, at most RedirectsMax. A redirect
	// to another origin drops all headers of the request that could hold a credential.
	Redirects int
}

// Response is a complete response.
type Response struct {
	Status int
	Header http.Header
	Body   []byte // decompressed
}

// Client sends requests. It follows redirects only if the request asks for it, and it
// uses no proxy. It is safe for concurrent use.
type Client struct {
	http      *http.Client
	transport *transport

	clock func() time.Time // nil before Report
	ended func(outcome string, took time.Duration)
}

// New returns a client that reaches public addresses and the exceptions.
func New(open Exceptions) *Client {
	dialer := &net.Dialer{Timeout: dialTimeout, Control: guard(open)}
	t := newTransport(dialer.DialContext)
	return &Client{transport: t, http: &http.Client{Transport: t, CheckRedirect: redirect}}
}

// Report sets a function that receives the outcome and the duration of every request.
// The outcome is the class of the response's status ("2xx"), the Reason of a failure, or
// "cancelled". Call Report before the first Do.
func (c *Client) Report(clock func() time.Time, ended func(outcome string, took time.Duration)) {
	c.clock, c.ended = clock, ended
}

// Close closes the idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Do sends a request and reads the whole response, whatever its status. The error is an
// *Error, or the cause of ctx if the caller cancelled it.
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

// outcome returns the name of a request's outcome, as Report describes it.
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

// progress is the state of one Do. The context of its requests carries it.
type progress struct {
	redirects   int         // that the request may follow
	isConnected atomic.Bool // some connection was made
}

type progressKey struct{}

// progressOf returns the progress that Do put into ctx.
func progressOf(ctx context.Context) *progress {
	p, _ := ctx.Value(progressKey{}).(*progress)
	return p
}

type observerKey struct{}

// Observe returns a context for requests whose end report receives: the host of the
// request, with the port if the address has one, and whether a connection was made.
// Requests that the context ended or the guard refused are not reported.
func Observe(ctx context.Context, report func(host string, connected bool)) context.Context {
	return context.WithValue(ctx, observerKey{}, report)
}

func build(ctx context.Context, req Request) (*http.Request, error) {
	u, err := url.Parse(req.URL)
	if err != nil {
		return nil, errors.New("the address is not a valid URL")
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
			return nil, errors.New("the name of a header is invalid")
		case HeaderRefused(name):
			return nil, fmt.Errorf("the header %s must not be set", http.CanonicalHeaderKey(name))
		case slices.ContainsFunc(values, func(value string) bool { return !httpguts.ValidHeaderFieldValue(value) }):
			return nil, fmt.Errorf("the value of the header %s is invalid", http.CanonicalHeaderKey(name))
		}
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	if r.Method != http.MethodHead && r.Header.Get("Range") == "" {
		r.Header.Set(headerAcceptEncoding, encodingGzip)
	}
	return r, nil
}

func (c *Client) exchange(req *http.Request, bytesMax int64) (*Response, error) {
	if bytesMax <= 0 || bytesMax > ResponseBytesMax {
		bytesMax = ResponseBytesMax
	}
	send := c.http.Do
	if progressOf(req.Context()).redirects <= 0 {
		send = c.transport.RoundTrip // http.Client fails on a redirect with an invalid Location
	}
	response, err := send(req)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode < http.StatusContinue:
		return nil, errInvalidStatus
	case response.StatusCode == http.StatusSwitchingProtocols: // its body is the connection itself
		return &Response{Status: response.StatusCode, Header: response.Header}, nil
	}
	decompressed, err := decompress(response)
	if err != nil {
		return nil, err
	}
	if response.ContentLength > bytesMax && req.Method != http.MethodHead {
		return nil, errTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(decompressed, bytesMax+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > bytesMax {
		return nil, errTooLarge
	}
	return &Response{Status: response.StatusCode, Header: response.Header, Body: body}, nil
}

const (
	headerAcceptEncoding  = "Accept-Encoding"
	headerContentEncoding = "Content-Encoding"
	encodingGzip          = "gzip"
)

// decompress returns the body of a response without compression and removes the headers
// that describe the compressed body.
func decompress(response *http.Response) (io.Reader, error) {
	isAsked := response.Request.Header.Get(headerAcceptEncoding) != ""
	if !isAsked || !strings.EqualFold(response.Header.Get(headerContentEncoding), encodingGzip) {
		return response.Body, nil
	}
	response.Header.Del(headerContentEncoding)
	response.Header.Del("Content-Length")
	response.ContentLength = -1
	decompressed, err := gzip.NewReader(response.Body)
	if errors.Is(err, io.EOF) {
		return response.Body, nil // the body is empty
	}
	return decompressed, err
}
