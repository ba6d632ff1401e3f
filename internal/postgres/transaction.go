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
	txRetryWait   = 5 * time.Millisecond // doubled with every attempt, jittered
)

// Beginner opens transactions: a pool or a connection; a transaction too, which
// opens a savepoint.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// InTx runs fn in a transaction and commits it; an error of fn rolls back.
//
// Where PostgreSQL gave the transaction up for the sake of another
// (serialization failure, deadlock), fn runs again from the start, at most 5
// times in all: it must do nothing but use tx. The error of fn comes back as it
// is, translated by Translate if it is the database's.
func InTx(ctx context.Context, db Beginner, fn func(tx pgx.Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := inTx(ctx, db, fn)
		if err == nil || attempt == txAttemptsMax || !givenUp(err) {
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

// inTx is pgx.BeginFunc with the scope of ctx in the BEGIN of a pool's
// connection, so that it costs no round trip.
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

// givenUp reports whether a repetition of the whole transaction may succeed.
func givenUp(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && (refused.Code == codeSerializationFailure || refused.Code == codeDeadlockDetected)
}
