package logging

import (
	"io"
	"sync"
	"time"
)

const (
	// bufferDelay is for how long a line waits at most, and bufferBytes how much may
	// wait: what a crash takes along.
	bufferDelay = 20 * time.Millisecond
	bufferBytes = 32 << 10
)

// buffer gathers lines and writes them together: under load each of its own would
// cost a request as much as all else that it logs.
type buffer struct {
	w io.Writer

	mu      sync.Mutex
	lines   []byte
	isTimed bool // a flush is to come
}

// Write takes a line. What is wrong with the writer below nobody is told, as with
// any handler of slog.
func (b *buffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line...)
	switch {
	case len(b.lines) >= bufferBytes:
		b.write()
	case !b.isTimed:
		b.isTimed = true
		time.AfterFunc(bufferDelay, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.isTimed = false
			b.write()
		})
	}
	return len(line), nil
}

// flush writes what waits.
func (b *buffer) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.write()
}

func (b *buffer) write() {
	if len(b.lines) > 0 {
		_, _ = b.w.Write(b.lines)
		b.lines = b.lines[:0]
	}
}
