package service

import (
	"context"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

const (
	// aloneTime is for how long a process does no two things at a time before it
	// is expected to go on like that.
	aloneTime = time.Second
	// A request is one thing to do. A job is two, for its items run beside each
	// other, and so is a large body, for what it leaves behind is collected meanwhile.
	requestThings, jobThings = 1, 2
	largeBodyBytes           = 64 << 10
)

// threads has Go run on one thread while the process does one thing at a time, and
// on all there are otherwise. Whenever something arrives, from a caller, the database
// or whom a workflow calls, Go wakes a thread that it has to spare before it looks
// at what has arrived, in case there is more; on a virtual machine that alone takes
// 25 µs of those that somebody waits for.
type threads struct {
	most   int
	before int           // how many Go had
	things atomic.Int64  // that are being done
	crowd  chan struct{} // has one element once there were two at a time
	left   chan struct{}
}

// newThreads returns those of the process, which are that many at most, and changes
// them until it is left.
func newThreads(most int) *threads {
	t := &threads{most: most, before: runtime.GOMAXPROCS(0), crowd: make(chan struct{}, 1), left: make(chan struct{})}
	t.do(jobThings)() // to start takes all
	go t.run()
	return t
}

// run changes how many there are. Go stops all of them for that, after the end of a
// collection that runs, for which nobody who has something to do should wait.
func (t *threads) run() {
	defer runtime.GOMAXPROCS(t.before)
	for {
		select {
		case <-t.crowd:
		case <-t.left:
			return
		}
		runtime.GOMAXPROCS(t.most)
		for t.crowded() {
		}
		runtime.GOMAXPROCS(1)
	}
}

// crowded waits a while and reports whether there were two things to do in it.
func (t *threads) crowded() bool {
	select {
	case <-time.After(aloneTime):
	case <-t.left:
		return false
	}
	select {
	case <-t.crowd:
		return true
	default:
		return t.things.Load() > 1
	}
}

// leave gives Go as many threads as it had before.
func (t *threads) leave() { close(t.left) }

// do says that so many things are being done until done is called.
func (t *threads) do(things int64) (done func()) {
	if t.things.Add(things) > 1 {
		select {
		case t.crowd <- struct{}{}:
		default:
		}
	}
	return func() { t.things.Add(-things) }
}

// handler counts the requests that next answers.
func (t *threads) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		things := int64(requestThings)
		if r.ContentLength > largeBodyBytes || r.ContentLength < 0 {
			things = jobThings
		}
		defer t.do(things)()
		next.ServeHTTP(w, r)
	})
}

// middleware counts jobs.
func (t *threads) middleware() rivertype.Middleware {
	return river.WorkerMiddlewareFunc(func(ctx context.Context, _ *rivertype.JobRow, work func(context.Context) error) error {
		defer t.do(jobThings)()
		return work(ctx)
	})
}
