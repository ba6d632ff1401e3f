package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/postgres"
)

// listening runs a listener on two channels and returns its notifications.
func listening(t *testing.T, url string) (heard chan string, resumed chan struct{}) {
	t.Helper()
	listener, err := postgres.NewListener(url, nil)
	require.NoError(t, err)
	heard, resumed = make(chan string, 100), make(chan struct{}, 100)
	listener.Subscribe("news", postgres.Subscription{
		Notified: func(payload string) { heard <- "news " + payload },
		Resumed:  func() { resumed <- struct{}{} },
	})
	listener.Subscribe(`odd "name"`, postgres.Subscription{Notified: func(payload string) { heard <- "odd " + payload }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- listener.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, receive(t, ended), context.Canceled)
	})
	return heard, resumed
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(20 * time.Second):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

func TestListener(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	pool := pgtest.OpenPool(t, url)
	notify := func(channel, payload string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), "SELECT pg_notify($1, $2)", channel, payload)
		require.NoError(t, err)
	}
	heard, resumed := listening(t, url)
	receive(t, resumed)

	notify("news", "1")
	notify("other", "unheard")
	notify(`odd "name"`, "2")
	require.Equal(t, "news 1", receive(t, heard))
	require.Equal(t, "odd 2", receive(t, heard))

	_, err := pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tranche listen' AND datname = current_database()")
	require.NoError(t, err)
	receive(t, resumed)
	notify("news", "3")
	require.Equal(t, "news 3", receive(t, heard))
	require.Empty(t, heard)
}

func TestListenerRetriesConnecting(t *testing.T) {
	t.Parallel()
	heard, resumed := listening(t, unreachable)
	time.Sleep(500 * time.Millisecond)
	require.Empty(t, heard)
	require.Empty(t, resumed)
}
