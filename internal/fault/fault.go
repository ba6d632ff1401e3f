// Package fault defines the errors that callers see. Each has a kind, a message that is safe
// to show, and a cause for the log. Package api maps kinds to status codes, and
// internal/postgres maps database errors to kinds. Package fault must not know HTTP, SQL or
// the domain.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind is the class of an error. A Kind is an error itself, so errors.Is(err,
// fault.NotFound) reports whether err has that kind.
type Kind string

// The kinds (contract A.7).
const (
	Invalid          Kind = "invalid"           // the body or a parameter is malformed
	Unauthorized     Kind = "unauthorized"      // the token is missing or invalid
	Forbidden        Kind = "forbidden"         // a scope is missing
	NotFound         Kind = "not found"         // unknown, or of another tenant
	Conflict         Kind = "conflict"          // the state of the resource does not allow it
	Stale            Kind = "stale"             // If-Match has the ETag of an older version
	Unprocessable    Kind = "unprocessable"     // well-formed, but impossible to process
	TooLarge         Kind = "too large"         // a size limit is exceeded
	UnsupportedMedia Kind = "unsupported media" // the content type is not accepted
	RateLimited      Kind = "rate limited"      // too many requests
	Unavailable      Kind = "unavailable"       // temporary: no database, or shutdown
	Timeout          Kind = "timeout"           // the request took too long to arrive
	Internal         Kind = "internal"          // unexpected
)

// Error implements error.
func (k Kind) Error() string { return string(k) }

// SubCode is the errorSubCode of a response (contract A.7.2; contract 1.9, 4 and 5).
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

// detailsMax is the highest number of details of one error.
const detailsMax = 50

// Detail describes one fault of a request. Field is the path of the field, such as
// tasks[0].config.url. Message must not repeat the value of the field.
type Detail struct {
	Field   string
	Message string
	// SubCode is the sub-code of the detail, if there is one. A response has the sub-code
	// that all its details share.
	SubCode SubCode
}

// Error is an error whose message is safe to show to the caller.
type Error struct {
	Kind       Kind
	Message    string
	SubCode    SubCode
	Details    []Detail
	RetryAfter time.Duration // the response rounds it up to whole seconds
	cause      error
}

// New returns an error of a kind with a message that is safe to show.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// InvalidRequest returns an error of kind Invalid whose details describe all faults.
func InvalidRequest(details ...Detail) *Error {
	return New(Invalid, "the request is invalid").WithDetails(details...)
}

// Wrap returns an error of a kind with a cause for the log.
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

// WithDetails adds details, at most 50 in all, and returns the error. If the error has no
// sub-code, it gets the one that all details share.
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

// WithRetryAfter sets the delay after which a retry may succeed and returns the error.
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

// Error returns the message and the cause. It is for logs; callers see only the message.
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

// From returns the *Error in the chain of err. If there is none, it returns an error of kind
// Internal with err as its cause.
func From(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Wrap(err, Internal, "an unexpected error occurred")
}
