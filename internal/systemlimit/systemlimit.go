// Package systemlimit reads the resource limits of the operating system. It must not know
// other packages of the project.
package systemlimit

import (
	"io/fs"
	"strconv"
	"strings"
)

// MemoryBytes returns how much memory the program may use: the limit of its control group,
// as a container has it, or the memory of the machine if that is less. It returns 0 if
// neither is known, for example on systems other than Linux. system is the root of the file
// system.
func MemoryBytes(system fs.FS) int64 {
	group, machine := groupMemory(system), totalMemory(system)
	if group == 0 || machine == 0 {
		return max(group, machine)
	}
	return min(group, machine)
}

// groupMemory returns the limit of the control group, or 0 if there is none ("max").
func groupMemory(system fs.FS) int64 {
	text, err := fs.ReadFile(system, "sys/fs/cgroup/memory.max")
	if err != nil {
		return 0
	}
	return number(strings.TrimSpace(string(text)))
}

// totalMemory returns the memory of the machine, or 0 if it cannot be read.
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

// number returns 0 if the text is not a number.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
