package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	txAttemptsMax = 5
	txRetryWait   = 5 * time.Millisecond // doubles with every attempt, with jitter
)

// Beginner opens transactions. It is a pool, a connection, or a transaction that opens a
// savepoint.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// InTx runs fn in a transaction and commits it. An error of fn rolls it back.
//
// If PostgreSQL aborted the transaction because of another one (serialization failure,
// deadlock), fn runs again, at most 5 times in all. So fn must have no effects except through
// tx. Translate translates the error.
func InTx(ctx context.Context, db Beginner, fn func(tx pgx.Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := inTx(ctx, db, fn)
		if err == nil || attempt == txAttemptsMax || !isRetryable(err) {
			return Translate(err)
		}
		wait := txRetryWait << (attempt - 1)
		select {
		case <-ctx.Done():
			return Translate(err)
		case <-time.After(wait + rand.N(wait)): //nolint:gosec // jitter, not a secret
		}
	}
}

// inTx is pgx.BeginFunc, except that the BEGIN sets the scope of ctx without a round trip.
func inTx(ctx context.Context, db Beginner, fn func(tx pgx.Tx) error) error {
	pool, ok := db.(*pgxpool.Pool)
	if !ok {
		return pgx.BeginFunc(ctx, db, fn)
	}
	conn, err := pool.Acquire(beginning(ctx))
	if err != nil {
		return err
	}
	defer conn.Release()
	var options pgx.TxOptions
	if s := sessionOf(conn.Conn()); s != nil {
		options.BeginQuery = s.beginQuery(ctx)
	}
	return pgx.BeginTxFunc(ctx, conn, options, fn)
}

// isRetryable reports whether the transaction may succeed if it runs again.
func isRetryable(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == codeSerializationFailure || pgErr.Code == codeDeadlockDetected)
}
