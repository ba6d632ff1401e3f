package execution

import (
	"context"
	"sync"
	"time"
)

const (
	// answerBytesMax is how many bytes of large answers and large stored states the
	// executions of a tenant hold in this process at a time. Decoded JSON takes up to
	// sixteen times as much memory.
	answerBytesMax = 48 << 20
	// answerSmallBytesMax is the largest answer that the memory limit ignores.
	answerSmallBytesMax = 64 << 10
	// answerWaitMax is how long an answer waits for the memory limit.
	answerWaitMax = 10 * time.Second
)

// memoryLease is the part of the tenant's memory limit that one drive holds.
type memoryLease struct {
	mu          sync.Mutex
	isRequested bool          // by the first large answer
	granted     chan struct{} // closed when the first large answer no longer waits
	isHeld      bool
	release     func()
}

// acquireMemory makes a large answer wait for the tenant's memory limit before it is
// decoded. A drive acquires memory once, for all of its answers: at least the size of the
// first large one, and as much as the executions of its plan usually hold. Answers that
// arrive during that wait share it, so a drive never waits for itself.
//
// The call already had its effect, so the answer must not be lost: after ten seconds, or
// half of the execution's remaining time, it is decoded regardless of the limit.
func (r *run) acquireMemory(ctx context.Context, bytes int) {
	if bytes <= answerSmallBytesMax {
		return
	}
	wait := answerWaitMax
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	r.memory.mu.Lock()
	isFirst := !r.memory.isRequested
	if isFirst {
		r.memory.isRequested, r.memory.granted = true, make(chan struct{})
	}
	r.memory.mu.Unlock()
	if !isFirst {
		select {
		case <-r.memory.granted:
		case <-ctx.Done():
		}
		return
	}
	defer close(r.memory.granted)
	size := max(int64(bytes), r.engine.Plan.Weight.Bytes())
	if release, err := r.service.answers.Acquire(ctx, r.tenantID, size); err == nil {
		r.memory.isHeld, r.memory.release = true, release
	}
}

// releaseMemory returns the memory after the drive and all of its calls have ended. A
// second call does nothing.
func (r *run) releaseMemory() {
	if r.memory.isHeld {
		r.memory.isHeld = false
		r.memory.release()
	}
}
