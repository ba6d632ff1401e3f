// Package threads has Go run on one thread while a process does one thing at a time,
// and on more otherwise; with the one, who waits for an answer stays awake. It must not
// know what the things are.
package threads

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// aloneTime is for how long a process does no two things at a time before it is
// expected to go on like that.
const aloneTime = time.Second

// One is a thing to do, and Many are several that run beside each other, as the
// items of a job do.
const (
	One  int64 = 1
	Many int64 = 2
)

// Threads are those on which Go runs. Whenever something arrives, from a caller, the
// database or whom a workflow calls, Go wakes threads that it has to spare before it
// looks at what has arrived, in case there is more; on a virtual machine that takes
// tens of microseconds of those that somebody waits for. The price is that who comes
// while one thing is computed waits for up to some ten milliseconds, until Go looks
// at the network; then there are all threads for a while.
type Threads struct {
	most   int
	spare  bool          // there are processors beside the one that is computed on
	before int           // how many Go had
	things atomic.Int64  // that are being done
	crowd  chan struct{} // has one element once there were two at a time
	left   chan struct{} // closed to end
	ended  sync.WaitGroup

	isAlone atomic.Bool // Go runs on one thread
}

// New returns those of a process, which are that many at most, and changes them until
// Leave. spare says that the machine has processors that nobody bounds the use of, beside
// the one that a single thing is computed on (Awake). There may be one of it in a process.
func New(most int, spare bool) *Threads {
	t := &Threads{most: most, spare: spare, before: runtime.GOMAXPROCS(0), crowd: make(chan struct{}, 1), left: make(chan struct{})}
	t.Do(Many)() // to start takes all
	t.ended.Go(t.run)
	return t
}

// Do says that something is being done until done is called: One thing, or Many. A
// nil Threads does not listen.
func (t *Threads) Do(things int64) (done func()) {
	if t == nil {
		return func() {}
	}
	if t.things.Add(things) > One {
		select {
		case t.crowd <- struct{}{}:
		default:
		}
	}
	return func() { t.things.Add(-things) }
}

// Leave gives Go as many threads as it had before; call it once.
func (t *Threads) Leave() {
	close(t.left)
	t.ended.Wait()
}

// run changes how many there are. Go stops all of them for that, after the end of a
// collection that runs, for which nobody who has something to do should wait.
func (t *Threads) run() {
	defer runtime.GOMAXPROCS(t.before)
	defer t.isAlone.Store(false)
	for {
		select {
		case <-t.crowd:
		case <-t.left:
			return
		}
		t.isAlone.Store(false)
		runtime.GOMAXPROCS(t.most)
		for t.crowded() {
		}
		runtime.GOMAXPROCS(1)
		t.isAlone.Store(true)
	}
}

// crowded waits a while and reports whether there were two things to do in it.
func (t *Threads) crowded() bool {
	select {
	case <-time.After(aloneTime):
	case <-t.left:
		return false
	}
	select {
	case <-t.crowd:
		return true
	default:
		return t.things.Load() > One
	}
}
