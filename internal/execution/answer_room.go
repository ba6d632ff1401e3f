package execution

import (
	"context"
	"sync"
	"time"
)

const (
	// roomBytes is how many bytes of large answers, stored ones too, the executions of a
	// tenant hold here at a time. Decoded they take up to sixteen times as much.
	roomBytes = 48 << 20
	// roomLightBytes is the most of an answer that needs no room.
	roomLightBytes = 64 << 10
	// roomWaitMax is for how long an answer waits for room.
	roomWaitMax = 10 * time.Second
)

// answerRoom is what a drive has of its tenant's room for large answers.
type answerRoom struct {
	mu     sync.Mutex
	waited chan struct{} // nil before the first large answer, closed once it waits no more
	leave  func()        // nil where there was no room in time
}

// enterRoom has a large answer wait, before it is decoded, until there is room for
// what the execution holds: as much as those of its plan do, but for this answer at
// least. A drive waits once, with its first large answer and those that come
// meanwhile, so it never waits for itself; and not for long, because the call has had
// its effect: whatever else holds the room, the answer is taken after ten seconds, or
// half of the time that is left for it. What is stored of an execution that goes on is
// its first answer.
func (r *run) enterRoom(ctx context.Context, bytes int) {
	if bytes <= roomLightBytes {
		return
	}
	wait := roomWaitMax
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	r.room.mu.Lock()
	waited, isFirst := r.room.waited, r.room.waited == nil
	if isFirst {
		waited = make(chan struct{})
		r.room.waited = waited
	}
	r.room.mu.Unlock()
	if !isFirst {
		select {
		case <-waited:
		case <-ctx.Done():
		}
		return
	}
	defer close(waited)
	size := max(int64(bytes), r.engine.Plan.Weight.Bytes())
	if leave, err := r.service.answers.Enter(ctx, r.tenantID, size); err == nil {
		r.room.leave = leave
	}
}

// leaveRoom is for when the drive has ended, and with it all of its calls. Once more
// it does nothing.
func (r *run) leaveRoom() {
	if r.room.leave != nil {
		r.room.leave()
		r.room.leave = nil
	}
}
