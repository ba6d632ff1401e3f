// Package machine says what the machine offers to the program. It must know no other
// package of the project.
package machine

import (
	"io/fs"
	"strconv"
	"strings"
)

// MemoryBytes is how much memory the program may use: what its control group allows (a
// container's limit), but not more than the machine has. It is 0 where nobody says, as
// on systems other than Linux. system is the root of the file system.
func MemoryBytes(system fs.FS) int64 {
	group, machine := groupMemory(system), totalMemory(system)
	if group == 0 || machine == 0 {
		return max(group, machine)
	}
	return min(group, machine)
}

// groupMemory is what the control group allows; 0 without a limit, which is written as
// max.
func groupMemory(system fs.FS) int64 {
	text, err := fs.ReadFile(system, "sys/fs/cgroup/memory.max")
	if err != nil {
		return 0
	}
	return number(strings.TrimSpace(string(text)))
}

// totalMemory is what the machine has; 0 if that cannot be read.
func totalMemory(system fs.FS) int64 {
	text, err := fs.ReadFile(system, "proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // MemTotal:       24689764 kB
		if len(fields) == 3 && fields[0] == "MemTotal:" {
			return number(fields[1]) << 10
		}
	}
	return 0
}

// number is 0 for what is no number.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
