package main

import (
	"io/fs"
	"math"
	"strconv"
	"strings"
)

// heapShare is the part of the memory up to which garbage may pile up; beyond
// it is collected at any cost. The other half is for what the program is not
// alone with: PostgreSQL, and files that the system keeps.
const heapShare = 2

// heapLimit is how large the heap may grow with garbage, by the memory that the
// program's control group or else the machine has; no limit where nobody says.
func heapLimit(system fs.FS) int64 {
	limit := int64(math.MaxInt64)
	if text, err := fs.ReadFile(system, "sys/fs/cgroup/memory.max"); err == nil {
		if bytes, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil { // else it is max
			limit = bytes / heapShare
		}
	}
	text, err := fs.ReadFile(system, "proc/meminfo")
	if err != nil {
		return limit
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // MemTotal:       24689764 kB
		if len(fields) == 3 && fields[0] == "MemTotal:" {
			if kilobytes, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				limit = min(limit, kilobytes<<10/heapShare)
			}
		}
	}
	return limit
}
