package threads

import (
	"errors"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// awakeTime is for how long a reader looks for what comes before it sleeps: about as long
// as a database nearby takes for a statement and its commit.
const awakeTime = 500 * time.Microsecond

// Listener returns listener with connections that are Awake: who is answered and calls
// again at once, one thing after the other, finds a reader that looks for it.
func (t *Threads) Listener(listener net.Listener) net.Listener {
	return awakeListener{listener, t}
}

type awakeListener struct {
	net.Listener
	threads *Threads
}

// Accept implements net.Listener.
func (l awakeListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.threads.Awake(conn), nil
}

// Awake returns conn with a reader that stays awake: while the process does one thing, and
// what came after it had last sent something came soon, it looks again and again whether
// the next is there (busy polling) before it sleeps. To wake it up, and a processor that
// has halted meanwhile, takes tens of microseconds of those that somebody waits for. The
// price is a processor for that time, and that what comes for others of the process is
// seen after it.
//
// Connections of other kinds than a socket are returned as they are, and so is any where
// there is no processor to spare, or for a nil Threads.
func (t *Threads) Awake(conn net.Conn) net.Conn {
	if t == nil || !t.spare {
		return conn
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return conn
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return conn
	}
	return &awake{Conn: conn, threads: t, raw: raw, opened: time.Now()}
}

type awake struct {
	net.Conn
	threads *Threads
	raw     syscall.RawConn
	opened  time.Time
	sent    atomic.Int64 // when something was sent, in time since opened; 0 once something has come after it
	isQuick atomic.Bool  // what came last after something was sent came within awakeTime
}

// SyscallConn implements syscall.Conn.
func (c *awake) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// CloseWrite shuts down the sending side, where the connection can: a server that answers
// before it has read all of a request lets the client read that.
func (c *awake) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Write implements net.Conn.
func (c *awake) Write(p []byte) (n int, err error) {
	n, err = c.Conn.Write(p)
	c.sent.Store(int64(time.Since(c.opened)))
	return n, err
}

// Read implements net.Conn.
func (c *awake) Read(p []byte) (n int, err error) {
	sent := c.sent.Load()
	until := c.opened.Add(time.Duration(sent) + awakeTime)
	if sent != 0 && c.isQuick.Load() && c.threads.isAlone.Load() {
		n, err = c.look(p, until)
	}
	if n == 0 && err == nil {
		n, err = c.Conn.Read(p) // it sleeps, and knows of ends and deadlines
	}
	if sent != 0 && n > 0 {
		c.isQuick.Store(time.Now().Before(until))
		c.sent.CompareAndSwap(sent, 0)
	}
	return n, err
}

// look reads what is there, or comes in time; 0 if nothing does, or the end has come. Its
// error is one of the connection, which the system tells but once.
func (c *awake) look(p []byte, until time.Time) (n int, err error) {
	_ = c.raw.Read(func(descriptor uintptr) bool {
		for {
			n, err = syscall.Read(int(descriptor), p)
			if !errors.Is(err, syscall.EAGAIN) || !time.Now().Before(until) {
				return true
			}
			runtime.Gosched() // others of the process go first
		}
	})
	if err == nil || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		return max(n, 0), nil
	}
	return 0, &net.OpError{
		Op: "read", Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(),
		Err: os.NewSyscallError("read", err),
	}
}
