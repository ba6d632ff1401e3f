package fault

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// Safely makes an error of a panic of do: in a goroutine that several share, or that
// nobody waits for, it would end the process with the work of all tenants.
func Safely(do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = Panicked(cause)
		}
	}()
	return do()
}

// Panicked is ErrPanic with the cause of a recovered panic and where it was, for the
// log alone.
func Panicked(cause any) error { return fmt.Errorf("%w: %v\n%s", ErrPanic, cause, debug.Stack()) }

// ErrPanic is what a panic was made into. What it broke off may be done in part.
var ErrPanic = errors.New("panic")
