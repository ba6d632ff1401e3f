package execution

import "sync"

// running counts the runs and background releases that Stop waits for. Unlike a
// sync.WaitGroup, it may grow while Stop waits, until the count is zero.
type running struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // made by the first wait, closed when n is zero afterwards
}

// begin adds one and reports true; the caller must call end. It reports false if a wait is
// over.
func (r *running) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.none != nil && r.n == 0 {
		return false
	}
	r.n++
	return true
}

func (r *running) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n--; r.n == 0 && r.none != nil {
		close(r.none)
	}
}

// Go calls do in a goroutine. After a wait is over, do still runs, but is not counted.
func (r *running) Go(do func()) {
	isCounted := r.begin()
	go func() {
		if isCounted {
			defer r.end()
		}
		do()
	}()
}

// wait returns a channel that is closed when the count is zero.
func (r *running) wait() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.none == nil {
		r.none = make(chan struct{})
		if r.n == 0 {
			close(r.none)
		}
	}
	return r.none
}
