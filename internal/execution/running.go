package execution

import "sync"

// running counts what a stop waits for. Unlike a sync.WaitGroup it may be added to while
// somebody waits, until none is left.
type running struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // nil until somebody waits; closed once none is left
}

// begin counts one more, until who waits has found none left. It reports whether it did;
// then end is to be called.
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

// Go does something in another goroutine, also when it is too late to wait for it.
func (r *running) Go(do func()) {
	isCounted := r.begin()
	go func() {
		if isCounted {
			defer r.end()
		}
		do()
	}()
}

// wait returns a channel that is closed once none is left.
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
