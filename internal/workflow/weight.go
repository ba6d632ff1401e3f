package workflow

import "sync/atomic"

const (
	// weightUnknown is assumed of a plan of which nothing has run yet.
	weightUnknown = 1 << 20
	// weightShare is how much of the weight the execution that ended last makes.
	weightShare = 32
)

// Weight is how many bytes of results, about as many as they have as JSON, an
// execution of a plan holds: the average of those that ended in this process, the
// last ones above all. It is safe for concurrent use; nil learns nothing.
type Weight struct {
	bytes atomic.Int64 // 0: none has ended
}

// Bytes is the weight.
func (w *Weight) Bytes() int64 {
	if w == nil {
		return weightUnknown
	}
	if bytes := w.bytes.Load(); bytes > 0 {
		return bytes
	}
	return weightUnknown
}

// Learn notes the most that an execution held at a time.
func (w *Weight) Learn(bytes int) {
	if w == nil {
		return
	}
	average := int64(bytes)
	if before := w.bytes.Load(); before > 0 {
		average = before + (average-before)/weightShare
	}
	w.bytes.Store(max(average, 1)) // of two at the same time one may be forgotten
}
