package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// How much garbage may pile up before it is collected: so many bytes, but in percent of
// what is in use (GOGC) no less and no more than these. Items of batches leave much
// behind and keep little. A percentage alone, the same for every heap, is either low, and
// a small heap is collected all the time, or high, and a large one takes memory in vain.
const (
	garbageBytes      = 100e6
	garbagePercentMin = 100 // Go's own measure
	garbagePercentMax = 300
)

// garbagePercent is how much may pile up beside inUse bytes.
func garbagePercent(inUse uint64) int {
	return int(min(max(100*garbageBytes/max(inUse, 1), garbagePercentMin), garbagePercentMax))
}

// boundGarbage says how much may pile up until the next collection, after that once
// more, and so on.
func boundGarbage() {
	inUse := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(inUse)
	debug.SetGCPercent(garbagePercent(inUse[0].Value.Uint64()))
	unused := new([64]byte) // which the next collection finds; less than 16 bytes may share their room
	runtime.AddCleanup(unused, func(struct{}) { boundGarbage() }, struct{}{})
}
