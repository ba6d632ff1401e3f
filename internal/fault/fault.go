// Package fault is the one shape in which errors travel from the domain to
// the caller: a kind, a message that is safe to show, and a cause that is
// only logged. It must not know HTTP, SQL or any domain type; package api maps
// kinds to status codes and internal/postgres maps database errors to kinds.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what class of error a caller meets. A Kind is itself an error, so
// errors.Is(err, fault.NotFound) asks for it.
type Kind string

// The kinds, after the codes of section 7 of the interface specification.
const (
	Invalid          Kind = "invalid"           // body or parameter malformed
	Unauthorized     Kind = "unauthorized"      // missing or invalid token
	Forbidden        Kind = "forbidden"         // a scope is missing
	NotFound         Kind = "not found"         // unknown, or another tenant's
	Conflict         Kind = "conflict"          // the state of the resource forbids it
	Stale            Kind = "stale"             // If-Match names an older version
	Unprocessable    Kind = "unprocessable"     // understood, but it cannot be processed
	TooLarge         Kind = "too large"         // a size limit is exceeded
	UnsupportedMedia Kind = "unsupported media" // the content type is not accepted
	RateLimited      Kind = "rate limited"      // too many requests
	Unavailable      Kind = "unavailable"       // temporarily away: database, shutdown
	Timeout          Kind = "timeout"           // the request took too long to arrive
	Internal         Kind = "internal"          // everything unexpected
)

// Error makes a kind usable as the target of errors.Is.
func (k Kind) Error() string { return string(k) }

// SubCode is the errorSubCode of an answer: section 7.2 of the interface
// specification and decisions 1.9, 4 and 5.
type SubCode string

// The sub-codes.
const (
	MissingRequiredField   SubCode = "MISSING_REQUIRED_FIELD"
	InvalidFieldType       SubCode = "INVALID_FIELD_TYPE"
	InvalidWorkflowStatus  SubCode = "INVALID_WORKFLOW_STATUS"
	InvalidExecutionStatus SubCode = "INVALID_EXECUTION_STATUS"
	ExecutionNotFinished   SubCode = "EXECUTION_NOT_FINISHED"
	ExecutionTimeout       SubCode = "EXECUTION_TIMEOUT"
	ExternalServiceError   SubCode = "EXTERNAL_SERVICE_ERROR"
	InputSchemaMismatch    SubCode = "INPUT_SCHEMA_MISMATCH"
	CircularDependency     SubCode = "CIRCULAR_DEPENDENCY"
)

// detailsMax bounds how many faults of one body are reported together.
const detailsMax = 50

// Detail names one fault of a request: Field is a path as the caller wrote it
// (tasks[0].config.url), Message says what is wrong without repeating the value.
type Detail struct {
	Field   string
	Message string
	// SubCode classifies the detail where a sub-code exists for it; an answer
	// carries the sub-code that all its details share.
	SubCode SubCode
}

// Error is an error with a message that may be shown to the caller.
type Error struct {
	Kind       Kind
	Message    string
	SubCode    SubCode
	Details    []Detail
	RetryAfter time.Duration // rounded up to whole seconds when sent
	cause      error
}

// New returns an error of a kind with a message that is safe to show.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// InvalidRequest returns the error of a request of which the details say all that is
// wrong.
func InvalidRequest(details ...Detail) *Error {
	return New(Invalid, "the request is invalid").WithDetails(details...)
}

// Wrap returns an error of a kind that keeps its cause for the log.
func Wrap(cause error, kind Kind, format string, args ...any) *Error {
	e := New(kind, format, args...)
	e.cause = cause
	return e
}

// WithSubCode sets the sub-code and returns the error.
func (e *Error) WithSubCode(code SubCode) *Error {
	e.SubCode = code
	return e
}

// WithDetails adds details, at most 50 in all, and returns the error. Where no
// sub-code is set and all details share one, the error takes it.
func (e *Error) WithDetails(details ...Detail) *Error {
	e.Details = append(e.Details, details...)
	if e.SubCode == "" {
		e.SubCode = shared(e.Details)
	}
	if len(e.Details) > detailsMax {
		e.Details = e.Details[:detailsMax]
	}
	return e
}

// WithRetryAfter says when a repetition may succeed and returns the error.
func (e *Error) WithRetryAfter(wait time.Duration) *Error {
	e.RetryAfter = wait
	return e
}

func shared(details []Detail) SubCode {
	if len(details) == 0 {
		return ""
	}
	for _, d := range details[1:] {
		if d.SubCode != details[0].SubCode {
			return ""
		}
	}
	return details[0].SubCode
}

// Error returns the message and the cause: the form for logs, never for callers.
func (e *Error) Error() string {
	if e.cause == nil {
		return e.Message
	}
	return e.Message + ": " + e.cause.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is the error's kind.
func (e *Error) Is(target error) bool {
	kind, ok := target.(Kind)
	return ok && kind == e.Kind
}

// From returns the *Error within err, or an opaque Internal one that keeps err
// as its cause.
func From(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Wrap(err, Internal, "an unexpected error occurred")
}
