package batch

import "time"

// crewKept is for how long a goroutine of a crew waits for the next work.
const crewKept = time.Second

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
