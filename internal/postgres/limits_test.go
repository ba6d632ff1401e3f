package postgres_test

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/postgres"
)

// line is a proxy in front of a database that can stop responding without closing connections,
// like a machine that hangs.
type line struct {
	url  string
	mute sync.RWMutex // held while silent
}

func newLine(t *testing.T) *line {
	t.Helper()
	database, err := pgx.ParseConfig(pgtest.EmptyURL(t))
	require.NoError(t, err)
	network, address := "tcp", net.JoinHostPort(database.Host, fmt.Sprint(database.Port))
	if database.Host[0] == '/' {
		network, address = "unix", fmt.Sprintf("%s/.s.PGSQL.%d", database.Host, database.Port)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	at := listener.Addr().(*net.TCPAddr)
	l := &line{url: fmt.Sprintf("host=%s port=%d user=%s password='%s' dbname=%s sslmode=disable", at.IP, at.Port, database.User, database.Password, database.Database)}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial(network, address)
			if err != nil {
				_ = client.Close()
				continue
			}
			go l.carry(client, server)
			go l.carry(server, client)
		}
	}()
	return l
}

func (l *line) carry(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	part := make([]byte, 4096)
	for {
		n, err := from.Read(part)
		l.mute.RLock()
		_, failed := to.Write(part[:n])
		l.mute.RUnlock()
		if err != nil || failed != nil {
			return
		}
	}
}

// A server that hangs cannot enforce the time limit of a statement, so the client does.
func TestStatementTimeLimitWithHangingServer(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	pool, err := postgres.NewPool(t.Context(), l.url, postgres.PoolOptions{Conns: 3, StatementTimeMax: 100 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), "SELECT pg_sleep(1)")
	requireUnavailable(t, postgres.Translate(err), time.Second)

	held, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer held.Release()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	l.mute.Lock()
	began := time.Now()
	var group sync.WaitGroup
	for _, wait := range []func() error{
		func() error { _, err := held.Exec(t.Context(), "SELECT 1"); return err },
		func() error { return tx.Commit(t.Context()) },
	} {
		group.Go(func() { requireUnavailable(t, postgres.Translate(wait()), time.Second) })
	}
	group.Wait()
	require.GreaterOrEqual(t, time.Since(began), 5*time.Second)

	l.mute.Unlock()
	require.Eventually(t, func() bool { return pool.Ping(t.Context()) == nil }, 20*time.Second, 50*time.Millisecond)
	batch := &pgx.Batch{}
	batch.Queue("SELECT 1")
	batch.Queue("SELECT pg_sleep(1)")
	requireUnavailable(t, postgres.Translate(pool.SendBatch(t.Context(), batch).Close()), time.Second)
}
