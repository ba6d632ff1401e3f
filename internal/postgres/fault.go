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

// SQLSTATE codes (PostgreSQL documentation, appendix A) that are told apart.
const (
	codeSerializationFailure = "40001"
	codeDeadlockDetected     = "40P01"
	codeReadOnlyTransaction  = "25006" // a standby, during failover
	codeNotSupported         = "0A000" // there, of an unlogged table; elsewhere of a plan whose table has just changed
	codeUniqueViolation      = "23505"
	codeLockNotAvailable     = "55P03"
	codeQueryCanceled        = "57014" // statement_timeout
	codeIdleInTransaction    = "25P03"
	codeCannotConnectNow     = "57P03" // the server starts, goes through what it has to recover, or stops
	codeTransactionTimeout   = "25P04"

	classConnection = "08"
	classIntegrity  = "23"
	classResources  = "53" // disk full, out of memory, too many connections
	classOperator   = "57" // shut down, starting up, database dropped
	classSystem     = "58" // input and output errors
)

const (
	retryAfterBusy = time.Second     // the database works, but not for this call
	retryAfterAway = 5 * time.Second // the database is away
)

// Translate turns what the database can do to any statement into
// fault.Unavailable with the time after which to try again: unreachable,
// shutting down, out of connections, disk or memory; no connection of the pool
// free in time; a transaction given up for another. Every other error, nil
// included, comes back unchanged: constraint violations belong to the caller
// (see Violates).
func Translate(err error) error {
	var already *fault.Error
	if err == nil || errors.As(err, &already) {
		return err
	}
	var refused *pgconn.PgError
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case isConnectionError(err):
		return fault.Wrap(err, fault.Unavailable, "the database cannot be reached").WithRetryAfter(retryAfterAway)
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.Unavailable, "the service is busy").WithRetryAfter(retryAfterBusy)
	case errors.As(err, &refused):
		return translateCode(err, refused.Code)
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

// IsStarting reports whether an error says that the server is there and takes no
// connections yet.
func IsStarting(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == codeCannotConnectNow
}

// Unsent reports whether an error says that a statement did not reach the server.
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
		// A statement on a connection that pgx has already closed: it keeps
		// no type for that.
		return pgconn.SafeToRetry(err) && strings.Contains(err.Error(), "conn closed")
	}
}

// IsDuplicate reports whether an error says that a row of its key is there already.
func IsDuplicate(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == codeUniqueViolation
}

// Violates reports whether err is the violation of the named constraint or
// unique index.
func Violates(err error, constraint string) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && strings.HasPrefix(refused.Code, classIntegrity) && refused.ConstraintName == constraint
}
