package threads

import (
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// awakeTime is for how long a reader looks for an answer before it sleeps: about as long
// as a database nearby takes for a statement and its commit.
const awakeTime = 500 * time.Microsecond

// Awake returns conn with a reader that stays awake: while the process does one thing,
// and the answer before came soon, it looks again and again whether the next is there
// (busy polling) before it sleeps. To wake it up, and a processor that has halted
// meanwhile, takes tens of microseconds of those that somebody waits for. The price is a
// processor for that time, which nothing else of the process needs.
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
	return &awake{Conn: conn, threads: t, raw: raw}
}

type awake struct {
	net.Conn
	threads *Threads
	raw     syscall.RawConn
	isQuick atomic.Bool // the last answer came within awakeTime
}

// SyscallConn implements syscall.Conn.
func (c *awake) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// Read implements net.Conn.
func (c *awake) Read(p []byte) (n int, err error) {
	begun := time.Now()
	if c.isQuick.Load() && c.threads.isAlone.Load() {
		n = c.look(p, begun.Add(awakeTime))
	}
	if n == 0 {
		n, err = c.Conn.Read(p) // it sleeps, and knows of ends, errors and deadlines
	}
	c.isQuick.Store(time.Since(begun) < awakeTime)
	return n, err
}

// look reads what is there, or comes in time; 0 if nothing does.
func (c *awake) look(p []byte, until time.Time) (n int) {
	_ = c.raw.Read(func(descriptor uintptr) bool {
		for {
			read, err := syscall.Read(int(descriptor), p)
			n = max(read, 0)
			if !errors.Is(err, syscall.EAGAIN) || !time.Now().Before(until) {
				return true
			}
			runtime.Gosched() // others of the process go first
		}
	})
	return n
}
