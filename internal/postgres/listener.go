package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	listenPingInterval = 30 * time.Second       // the time to detect a dead connection
	listenRetryWait    = 100 * time.Millisecond // doubles with every attempt
	listenRetryWaitMax = 5 * time.Second
)

// Listener receives the notifications of the process on one connection. It reconnects when it
// loses the connection.
type Listener struct {
	config        *pgx.ConnConfig
	log           *slog.Logger
	subscriptions map[string]Subscription
}

// Subscription has the functions of a channel. They run on the goroutine of the listener and
// must not block.
type Subscription struct {
	// Notified receives the payload of each notification.
	Notified func(payload string)
	// Resumed is called after every connect, also after the first. It may be nil. Earlier
	// notifications are lost, so the function should read the tables.
	Resumed func()
}

// NewListener creates a listener. Run connects it. The log may be nil.
func NewListener(url string, log *slog.Logger) (*Listener, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	setConn(config, "tranche listen")
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Listener{config: config, log: log, subscriptions: map[string]Subscription{}}, nil
}

// Subscribe sets the subscription of a channel. It must be called before Run.
func (l *Listener) Subscribe(channel string, subscription Subscription) {
	l.subscriptions[channel] = subscription
}

// Run listens until ctx ends and returns the error of ctx. It reconnects after every loss of
// the connection.
func (l *Listener) Run(ctx context.Context) error {
	wait := listenRetryWait
	for {
		began, err := l.listen(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if began {
			wait = listenRetryWait
		}
		l.log.WarnContext(ctx, "the listener lost its connection and reconnects", "error", err, "wait", wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, listenRetryWaitMax)
		}
	}
}

// listen serves one connection until it fails. It reports whether the connection worked.
func (l *Listener) listen(ctx context.Context) (began bool, err error) {
	conn, err := pgx.ConnectConfig(ctx, l.config.Copy())
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for channel := range l.subscriptions {
		if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return false, err
		}
	}
	for _, subscription := range l.subscriptions {
		if subscription.Resumed != nil {
			subscription.Resumed()
		}
	}
	for {
		notification, err := next(ctx, conn)
		if err != nil {
			return true, err
		}
		if notification != nil {
			l.subscriptions[notification.Channel].Notified(notification.Payload)
		}
	}
}

// next waits for a notification. It returns nil if none came for a while and the connection
// still works.
func next(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	silence, cancel := context.WithTimeout(ctx, listenPingInterval)
	defer cancel()
	notification, err := conn.WaitForNotification(silence)
	if err == nil || ctx.Err() != nil || !errors.Is(silence.Err(), context.DeadlineExceeded) {
		return notification, err
	}
	answer, cancel := context.WithTimeout(ctx, connectTimeMax)
	defer cancel()
	return nil, conn.Ping(answer)
}
