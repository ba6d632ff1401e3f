package egress

import (
	"context"
	"errors"
	"net/url"
)

// Reason says why there is no answer. It is for deciding about a repetition
// and for the log; a tenant who could see it would have a port scanner.
type Reason string

// The reasons.
const (
	Refused     Reason = "refused"     // the guard forbids the address; nothing was sent
	Malformed   Reason = "malformed"   // the request cannot be built; nothing was sent
	Unreachable Reason = "unreachable" // no connection could be made; nothing was sent
	Broken      Reason = "broken"      // the connection ended before the answer did
	TimedOut    Reason = "timed out"   // the time ran out after a connection was made
	TooLarge    Reason = "too large"   // the answer's body exceeds its limit
)

// Error is the failure of a request that got no usable answer. Its text is for
// the log; only that of Malformed is free of what the network said.
type Error struct {
	Reason Reason
	cause  error
}

// Error returns the reason and the cause.
func (e *Error) Error() string {
	if e.cause == nil {
		return string(e.Reason)
	}
	return string(e.Reason) + ": " + e.cause.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

var (
	errTooLarge      = errors.New("the answer is larger than allowed")
	errInvalidStatus = errors.New("the answer has a status below 100")
)

// classify names the reason of a failure. The caller's own cancellation is no
// failure of the other side and is handed back as it is.
func classify(caller, bounded context.Context, err error, connected bool) error {
	if inURL, ok := errors.AsType[*url.Error](err); ok {
		err = inURL.Err // without the address, which may hold what no log should
	}
	switch {
	case errors.Is(caller.Err(), context.Canceled):
		return context.Cause(caller)
	case errors.Is(err, errTooLarge):
		return &Error{Reason: TooLarge, cause: err}
	case errors.Is(err, errRefused):
		return &Error{Reason: Refused, cause: err}
	case !connected:
		return &Error{Reason: Unreachable, cause: err}
	case bounded.Err() != nil:
		return &Error{Reason: TimedOut, cause: err}
	default:
		return &Error{Reason: Broken, cause: err}
	}
}
