package egress

import (
	"context"
	"errors"
	"net/url"
)

// Reason is the reason why there is no response. It decides about a retry and goes to the
// log. Tenants must not see it, because it would give them a port scanner.
type Reason string

// The reasons.
const (
	Refused     Reason = "refused"     // the guard does not allow the address; nothing was sent
	Malformed   Reason = "malformed"   // the request is invalid; nothing was sent
	Unreachable Reason = "unreachable" // no connection was made; nothing was sent
	Broken      Reason = "broken"      // the connection ended before the response
	TimedOut    Reason = "timed out"   // the time limit ended after a connection was made
	TooLarge    Reason = "too large"   // the body of the response exceeds its limit
)

// Error is the error of a request without a usable response. Its text is for the log. Only
// the text of Malformed contains nothing from the network.
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
	errTooLarge      = errors.New("the response is larger than allowed")
	errInvalidStatus = errors.New("the response has a status below 100")
)

// classify returns an *Error with the reason of err, or the cause of the caller's
// cancellation.
func classify(caller, bounded context.Context, err error, connected bool) error {
	if inURL, ok := errors.AsType[*url.Error](err); ok {
		err = inURL.Err // without the address, which may contain a credential
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
