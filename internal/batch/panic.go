package batch

import (
	"fmt"
	"runtime/debug"
)

// safely makes an error of a panic. In goroutines that a job starts nobody else
// does, and it would end the process with the work of all tenants.
func safely(do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	return do()
}
