package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

// interimMax is how many interim answers (1xx) may come before the answer.
const interimMax = 5

var (
	errHeadersTooLarge = errors.New("the headers of the answer are larger than allowed")
	errInterim         = errors.New("too many interim answers")
	errStatus          = errors.New("the status of the answer is none")
)

// connection is one over which requests are sent one after the other.
type connection struct {
	transport *transport
	origin    string
	conn      net.Conn
	in        *bufio.Reader
	out       *bufio.Writer
	idleSince time.Time

	headersLeft int64 // bytes that may be read before the body; less than 0 in the body
	isAnswered  bool  // a byte of the answer has come
}

func newConnection(t *transport, origin string, conn net.Conn) *connection {
	c := &connection{transport: t, origin: origin, conn: conn, out: bufio.NewWriter(conn)}
	c.in = bufio.NewReader(c)
	return c
}

// Read reads for the buffer, and bounds the headers.
func (c *connection) Read(p []byte) (int, error) {
	if c.headersLeft == 0 {
		return 0, errHeadersTooLarge
	}
	if c.headersLeft > 0 && int64(len(p)) > c.headersLeft {
		p = p[:c.headersLeft]
	}
	n, err := c.conn.Read(p)
	if c.headersLeft > 0 {
		c.headersLeft -= int64(n)
	}
	c.isAnswered = c.isAnswered || n > 0
	return n, err
}

// exchange sends a request and reads the answer up to its body. The end of the
// request's context closes the connection.
func (c *connection) exchange(r *http.Request) (*http.Response, error) {
	c.isAnswered, c.headersLeft = false, responseHeadersMax
	stop := context.AfterFunc(r.Context(), c.close)
	unsent := c.send(r)
	answer, err := c.readAnswer(r) // also if not all was sent: the other side may have answered without reading it
	if err != nil {
		stop()
		if unsent != nil && !c.isAnswered {
			return nil, unsent
		}
		return nil, err
	}
	c.headersLeft = -1
	answer.Body = &body{
		ReadCloser: answer.Body, connection: c, stop: stop,
		isLast: unsent != nil || answer.Close || answer.StatusCode == http.StatusSwitchingProtocols,
	}
	return answer, nil //nolint:nilerr // the answer tells more than that not all was sent
}

func (c *connection) send(r *http.Request) error {
	if err := r.Write(c.out); err != nil {
		return err
	}
	return c.out.Flush()
}

func (c *connection) readAnswer(r *http.Request) (*http.Response, error) {
	for range interimMax + 1 {
		answer, err := http.ReadResponse(c.in, r)
		if err == nil && answer.StatusCode < http.StatusContinue {
			return nil, errStatus
		}
		if err != nil || answer.StatusCode >= http.StatusOK || answer.StatusCode == http.StatusSwitchingProtocols {
			return answer, err
		}
	}
	return nil, errInterim
}

// isOpen reports whether the other side has neither closed the connection nor sent
// what nobody asked for, as far as has arrived.
func (c *connection) isOpen() bool {
	if time.Since(c.idleSince) > idleTimeout {
		return false
	}
	if secured, ok := c.conn.(*tls.Conn); ok { // which may hold what the socket no longer does
		return isWaiting(secured.NetConn()) && c.holdsNothing()
	}
	return isWaiting(c.conn)
}

// holdsNothing reports whether a connection that is not waited for has nothing to
// read.
func (c *connection) holdsNothing() bool {
	if err := c.conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return false
	}
	_, err := c.in.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded) && c.conn.SetReadDeadline(time.Time{}) == nil
}

// isWaiting reports whether a socket is open and has nothing to read.
func isWaiting(conn net.Conn) bool {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	isSilent := false
	err = raw.Read(func(descriptor uintptr) bool {
		_, _, err := syscall.Recvfrom(int(descriptor), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		isSilent = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && isSilent
}

// close closes the connection at once: the farewell of TLS would wait for a peer
// that does not read.
func (c *connection) close() {
	conn := c.conn
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	_ = conn.Close()
}

// body is that of an answer.
type body struct {
	io.ReadCloser
	connection *connection
	stop       func() bool // ends the watch over the request's context
	isLast     bool        // nothing more is to be sent over the connection
	isRead     bool        // to its end
}

// Read reads from the body.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.isRead = b.isRead || errors.Is(err, io.EOF)
	return n, err
}

// Close keeps the connection for later requests if the body was read to its end,
// and closes it otherwise.
func (b *body) Close() error {
	c := b.connection
	if c == nil {
		return nil
	}
	b.connection = nil
	if b.stop() && b.isRead && !b.isLast && c.in.Buffered() == 0 {
		c.transport.keep(c)
	} else {
		c.close()
	}
	return nil
}
