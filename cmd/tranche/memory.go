package main

import (
	"os"
	"runtime/debug"

	"tranche/internal/systemlimit"
)

const (
	// gcPercent replaces the default of Go (100) unless the operator sets GOGC. Batches allocate
	// much and keep little: 300 saves 8 % of the CPU time of an item, and a million-item batch
	// takes about 210 MB.
	gcPercent = 300
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
