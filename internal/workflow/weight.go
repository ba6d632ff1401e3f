package workflow

import "sync/atomic"

const (
	// weightUnknown is assumed of a plan of which nothing has ended yet.
	weightUnknown = 1 << 20
	// weightFailed is what an execution that failed weighs at least, unless its plan
	// weighs less: a call without an answer says nothing of answers. It is less than
	// weightUnknown, so that executions that only fail do not stay a few at a time.
	weightFailed = 128 << 10
	// weightShare is into how many parts the weight is divided, one of which is that of
	// the execution that ended last.
	weightShare = 32
)

// Weight is how many bytes of results, about as many as they have as JSON, an
// execution of a plan holds: the average of those that ran in this process, the last
// ones above all. It is safe for concurrent use; nil learns nothing.
type Weight struct {
	learnt atomic.Int64 // beyond weightUnknown, which is where it begins
}

// Bytes is the weight.
func (w *Weight) Bytes() int64 {
	if w == nil {
		return weightUnknown
	}
	return weightUnknown + w.learnt.Load()
}

// Learn notes the most that an execution held at a time, until it ended or rests.
func (w *Weight) Learn(bytes int, failed bool) {
	if w == nil {
		return
	}
	before, now := w.Bytes(), int64(bytes)
	if failed {
		now = max(now, min(before, weightFailed))
	}
	w.learnt.Add((now - before) / weightShare)
}
