package main

import (
	"os"
	"runtime/debug"

	"tranche/internal/systemlimit"
)

const (
	// gcPercent replaces Go's default of 100 unless the operator sets GOGC. Batches allocate
	// much and keep little: 200 halves the number of collections, and a million-item batch
	// stays below 200 MB.
	gcPercent = 200
	// memoryShare is the part of the memory that Go uses before it collects garbage at any
	// cost, unless the operator sets GOMEMLIMIT. The rest is for PostgreSQL and the file
	// cache of the system.
	memoryShare = 0.5
)

// limitMemory sets the garbage collector once, at the start of the program.
func limitMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if bytes := systemlimit.MemoryBytes(os.DirFS("/")); bytes > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(memoryShare * float64(bytes)))
	}
}
