package batch

import (
	"runtime"
	"time"
)

const (
	// crewKept is for how long a goroutine of a crew waits for the next work.
	crewKept = time.Second
	// crewStack is how many bytes of its stack a goroutine of a crew always uses. When
	// garbage is collected Go halves the stacks of which less than a quarter is in use:
	// so it leaves those of 16 KiB as they are, which an item with a call needs.
	crewStack = 4 << 10
)

// crew runs work on goroutines that are kept a while for more of it: that of an
// item with a call needs a large stack, and to grow one anew for each item takes
// as long as a tenth of the item.
type crew chan func()

// start runs work beside the caller's.
func (c crew) start(work func()) {
	select {
	case c <- work:
	default:
		go c.serve(work)
	}
}

func (c crew) serve(work func()) {
	var used [crewStack]byte
	defer runtime.KeepAlive(&used)
	idle := time.NewTimer(crewKept)
	defer idle.Stop()
	for {
		work()
		idle.Reset(crewKept)
		select {
		case work = <-c:
		case <-idle.C:
			return
		}
	}
}
