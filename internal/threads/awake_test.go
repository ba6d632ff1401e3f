package threads

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// alone are threads of a process that does one thing, on a machine with processors to
// spare.
func alone() *Threads {
	t := &Threads{spare: true}
	t.isAlone.Store(true)
	return t
}

// sockets returns both ends of a connection, the first of them awake.
func sockets(t *testing.T, of *Threads) (reader *awake, writer net.Conn) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	writer, err = listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { writer.Close() })
	reader, ok := of.Awake(conn).(*awake)
	require.True(t, ok)
	return reader, writer
}

// looks has the reader look when it reads next.
func (c *awake) looks() {
	c.isQuick.Store(true)
	c.sent.Store(int64(time.Since(c.opened)))
}

func TestWhoLooksReadsWhatComesInTime(t *testing.T) {
	t.Parallel()
	reader, writer := sockets(t, alone())
	text := make([]byte, 10)
	n, err := reader.look(text, time.Now())
	require.NoError(t, err)
	require.Zero(t, n, "nothing is there")

	read := make(chan int)
	go func() {
		n, _ := reader.look(text, time.Now().Add(time.Hour))
		read <- n
	}()
	_, err = writer.Write([]byte("answer"))
	require.NoError(t, err)
	require.Equal(t, 6, <-read)
	require.Equal(t, "answer", string(text[:6]))
}

func TestAReaderLooksOnlyAfterAQuickAnswer(t *testing.T) {
	t.Parallel()
	reader, writer := sockets(t, alone())
	text := make([]byte, 1)
	answer := func(after time.Duration) {
		_, err := reader.Write([]byte("?"))
		require.NoError(t, err)
		time.AfterFunc(after, func() { _, _ = writer.Write([]byte("!")) })
		_, err = io.ReadFull(reader, text)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { // the machine may stand still meanwhile
		answer(0)
		return reader.isQuick.Load()
	}, 10*time.Second, time.Millisecond)
	answer(4 * awakeTime)
	require.False(t, reader.isQuick.Load())
}

func TestWhatComesUnaskedIsNotLookedFor(t *testing.T) {
	t.Parallel()
	reader, writer := sockets(t, alone())
	text := make([]byte, 1)
	receive := func() {
		_, err := writer.Write([]byte("n"))
		require.NoError(t, err)
		_, err = io.ReadFull(reader, text)
		require.NoError(t, err)
	}
	receive()
	require.False(t, reader.isQuick.Load(), "nothing was sent before it")

	_, err := reader.Write([]byte("?"))
	require.NoError(t, err)
	require.NotZero(t, reader.sent.Load())
	receive()
	require.Zero(t, reader.sent.Load(), "it has come, and what comes next is of its own accord")
}

func TestConnectionsOfAListenerAreAwake(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	conn, err := alone().Listener(listener).Accept()
	require.NoError(t, err)
	defer conn.Close()
	served, isAwake := conn.(*awake)
	require.True(t, isAwake)

	require.NoError(t, served.CloseWrite())
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	_, err = client.Write([]byte("the rest"))
	require.NoError(t, err)
	rest := make([]byte, 8)
	_, err = io.ReadFull(conn, rest)
	require.NoError(t, err)
	require.Equal(t, "the rest", string(rest))

	require.NoError(t, listener.Close())
	_, err = alone().Listener(listener).Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestAReaderThatLooksKnowsEndsAndDeadlines(t *testing.T) {
	t.Parallel()
	reader, writer := sockets(t, alone())
	text := make([]byte, 1)

	reader.looks()
	require.NoError(t, reader.SetReadDeadline(time.Now().Add(-time.Second)))
	_, err := reader.Read(text)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, reader.SetReadDeadline(time.Time{}))

	reader.looks()
	require.NoError(t, writer.Close())
	_, err = reader.Read(text)
	require.ErrorIs(t, err, io.EOF)

	reader.looks()
	require.NoError(t, reader.Close())
	_, err = reader.Read(text)
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestNobodyIsAwakeWithoutAProcessorToSpare(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	require.Same(t, near, alone().Awake(near), "no socket")
	require.Same(t, near, (*Threads)(nil).Awake(near))

	conn, _ := sockets(t, alone())
	require.Same(t, conn, (&Threads{}).Awake(conn))
}

// That a connection broke off, which the system tells but once, is not its end: that would
// make a whole of what had come before.
func TestAReaderThatLooksKnowsErrors(t *testing.T) {
	t.Parallel()
	reader, writer := sockets(t, alone())
	socket, ok := writer.(*net.TCPConn)
	require.True(t, ok)
	require.NoError(t, socket.SetLinger(0))
	require.NoError(t, writer.Close())
	reader.looks()
	reader.sent.Add(int64(time.Hour)) // it looks until it knows
	_, err := reader.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	var broken *net.OpError
	require.ErrorAs(t, err, &broken)
	require.Equal(t, "read", broken.Op)
}
