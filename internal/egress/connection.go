package egress

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// interimMax is how many interim answers (1xx) may come before the answer.
const interimMax = 5

var (
	errHeadersTooLarge = errors.New("the headers of the answer are larger than allowed")
	errInterim         = errors.New("too many interim answers")
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
	stop := context.AfterFunc(r.Context(), func() { _ = c.conn.Close() })
	unsent := c.send(r)
	answer, err := c.readAnswer(r) // also then: one to what the other side would not read may have come
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
		if err != nil || answer.StatusCode >= http.StatusOK || answer.StatusCode == http.StatusSwitchingProtocols {
			return answer, err
		}
	}
	return nil, errInterim
}

// isOpen reports whether the other side has neither closed the connection nor sent
// what nobody asked for.
func (c *connection) isOpen() bool {
	conn := c.conn
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secured.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok || time.Since(c.idleSince) > idleTimeout {
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
		return c.transport.keep(c)
	}
	return c.conn.Close()
}
