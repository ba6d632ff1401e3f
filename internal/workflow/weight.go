package workflow

import "sync/atomic"

const (
	// weightUnknown is the weight of a plan without ended executions.
	weightUnknown = 1 << 20
	// weightFailed is the least weight of a failed execution, unless its plan weighs less:
	// a call without a response does not show how large responses are. It is less than
	// weightUnknown, so that executions that only fail can run in larger numbers.
	weightFailed = 128 << 10
	// weightShare is the divisor of the moving average: the latest execution counts as one
	// part in weightShare.
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
