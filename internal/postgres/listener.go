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
	listenPingInterval = 30 * time.Second       // how soon a silently dead connection is noticed
	listenRetryWait    = 100 * time.Millisecond // doubled with every attempt
	listenRetryWaitMax = 5 * time.Second
)

// Listener receives notifications on one connection for the whole process, and
// makes a new one whenever it is lost.
type Listener struct {
	config        *pgx.ConnConfig
	log           *slog.Logger
	subscriptions map[string]Subscription
}

// Subscription is what happens on a channel. Both functions run on the
// listener's goroutine and must not block.
type Subscription struct {
	// Notified receives the payload of each notification.
	Notified func(payload string)
	// Resumed, unless nil, is called whenever listening begins, the first time
	// included: notifications sent before are lost, so look at the tables.
	Resumed func()
}

// NewListener makes a listener that does not connect before Run. A nil log
// discards.
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

// Subscribe sets what happens on a channel. It must be called before Run.
func (l *Listener) Subscribe(channel string, subscription Subscription) {
	l.subscriptions[channel] = subscription
}

// Run listens until ctx ends, through every loss of the connection, and returns
// ctx's error.
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
		l.log.WarnContext(ctx, "the listening connection was lost; connecting again", "error", err, "wait", wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, listenRetryWaitMax)
		}
	}
}

// listen serves one connection until it fails; began says that it worked at all.
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

// next waits for a notification. After a long silence it returns nil if the
// connection still answers.
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
