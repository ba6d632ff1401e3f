package fault

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrPanic is the error of a recovered panic. The interrupted work may be done in part.
var ErrPanic = errors.New("panic")

// Safely calls do and returns a panic of it as an error. Without it, a panic in a shared or
// background goroutine would end the process and with it the work of all tenants.
func Safely(do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = Panicked(cause)
		}
	}()
	return do()
}

// Panicked returns ErrPanic with the cause and the stack of a recovered panic, for the log.
func Panicked(cause any) error { return fmt.Errorf("%w: %v\n%s", ErrPanic, cause, debug.Stack()) }
