package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"tranche/internal/fault"
)

// SQLSTATE codes (PostgreSQL documentation, appendix A).
const (
	codeSerializationFailure = "40001"
	codeDeadlockDetected     = "40P01"
	codeReadOnlyTransaction  = "25006" // a standby, during failover
	codeNotSupported         = "0A000" // an unlogged table on a standby, or a cached plan of a table that has just changed
	codeUniqueViolation      = "23505"
	codeLockNotAvailable     = "55P03"
	codeQueryCanceled        = "57014" // statement_timeout
	codeIdleInTransaction    = "25P03"
	codeCannotConnectNow     = "57P03" // the server starts, recovers or stops
	codeTransactionTimeout   = "25P04"

	classConnection = "08"
	classIntegrity  = "23"
	classResources  = "53" // disk full, out of memory, too many connections
	classOperator   = "57" // shut down, starting up, database dropped
	classSystem     = "58" // input and output errors
)

const (
	retryAfterBusy = time.Second     // the database works, but this statement failed
	retryAfterAway = 5 * time.Second // the database is unreachable
)

// Translate returns fault.Unavailable with a retry delay for errors that any statement can
// have: the database is unreachable or shuts down; connections, disk or memory are exhausted;
// no connection of the pool becomes free in time; a transaction was aborted because of
// another. It returns other errors, and nil, unchanged. The caller handles constraint
// violations (see Violates).
func Translate(err error) error {
	var already *fault.Error
	if err == nil || errors.As(err, &already) {
		return err
	}
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case isConnectionError(err):
		return fault.Wrap(err, fault.Unavailable, "the database cannot be reached").WithRetryAfter(retryAfterAway)
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.Unavailable, "the service is busy").WithRetryAfter(retryAfterBusy)
	case errors.As(err, &pgErr):
		return translateCode(err, pgErr.Code)
	default:
		return err
	}
}

func translateCode(err error, code string) error {
	switch code {
	case codeSerializationFailure, codeDeadlockDetected, codeLockNotAvailable, codeQueryCanceled, codeIdleInTransaction, codeTransactionTimeout:
		return fault.Wrap(err, fault.Unavailable, "the service is busy").WithRetryAfter(retryAfterBusy)
	case codeReadOnlyTransaction, codeNotSupported:
		return fault.Wrap(err, fault.Unavailable, "the database is not available").WithRetryAfter(retryAfterAway)
	}
	switch code[:2] {
	case classConnection, classResources, classOperator, classSystem:
		return fault.Wrap(err, fault.Unavailable, "the database is not available").WithRetryAfter(retryAfterAway)
	}
	return err
}

// IsStarting reports whether err means that the server runs and accepts no connections yet.
func IsStarting(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == codeCannotConnectNow
}

// Unsent reports whether err means that the statement did not reach the server.
func Unsent(err error) bool {
	var connecting *pgconn.ConnectError
	return errors.As(err, &connecting) || pgconn.SafeToRetry(err)
}

func isConnectionError(err error) bool {
	var connecting *pgconn.ConnectError
	var network net.Error
	switch {
	case errors.As(err, &connecting), errors.Is(err, puddle.ErrClosedPool), errors.Is(err, net.ErrClosed),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	case errors.As(err, &network) && !errors.Is(err, context.DeadlineExceeded):
		return true
	default:
		// pgx has no error type for a statement on a closed connection.
		return pgconn.SafeToRetry(err) && strings.Contains(err.Error(), "conn closed")
	}
}

// IsDuplicate reports whether err means that a row with the same key exists.
func IsDuplicate(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == codeUniqueViolation
}

// Violates reports whether err is a violation of the named constraint or unique index.
func Violates(err error, constraint string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && strings.HasPrefix(pgErr.Code, classIntegrity) && pgErr.ConstraintName == constraint
}
