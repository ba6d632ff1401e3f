package threads

import (
	"io"
	"net"
	"os"
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

func TestWhoLooksReadsWhatComesInTime(t *testing.T) {
	t.Parallel()
	reader, writer := sockets(t, alone())
	text := make([]byte, 10)
	require.Zero(t, reader.look(text, time.Now()), "nothing is there")

	read := make(chan int)
	go func() { read <- reader.look(text, time.Now().Add(time.Hour)) }()
	_, err := writer.Write([]byte("answer"))
	require.NoError(t, err)
	require.Equal(t, 6, <-read)
	require.Equal(t, "answer", string(text[:6]))
}

func TestAReaderLooksOnlyAfterAQuickAnswer(t *testing.T) {
	t.Parallel()
	reader, writer := sockets(t, alone())
	text := make([]byte, 1)
	require.Eventually(t, func() bool { // the machine may stand still meanwhile
		_, err := writer.Write([]byte("q"))
		require.NoError(t, err)
		_, err = io.ReadFull(reader, text)
		require.NoError(t, err)
		return reader.isQuick.Load()
	}, 10*time.Second, time.Millisecond)

	time.AfterFunc(4*awakeTime, func() { _, _ = writer.Write([]byte("s")) })
	_, err := io.ReadFull(reader, text)
	require.NoError(t, err)
	require.Equal(t, "s", string(text))
	require.False(t, reader.isQuick.Load())
}

func TestAReaderThatLooksKnowsEndsAndDeadlines(t *testing.T) {
	t.Parallel()
	reader, writer := sockets(t, alone())
	text := make([]byte, 1)

	reader.isQuick.Store(true)
	require.NoError(t, reader.SetReadDeadline(time.Now().Add(-time.Second)))
	_, err := reader.Read(text)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, reader.SetReadDeadline(time.Time{}))

	reader.isQuick.Store(true)
	require.NoError(t, writer.Close())
	_, err = reader.Read(text)
	require.ErrorIs(t, err, io.EOF)

	reader.isQuick.Store(true)
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
