package main

import (
	"math"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestHeapLimit(t *testing.T) {
	t.Parallel()
	const machine = "MemTotal:       8388608 kB\nMemFree:        3000000 kB\n"
	for name, c := range map[string]struct {
		group, memory string
		want          int64
	}{
		"a machine":             {"max\n", machine, 4 << 30},
		"a group of it":         {"1073741824\n", machine, 512 << 20},
		"a group that is wider": {"99999999999999\n", machine, 4 << 30},
		"a group alone":         {"1073741824\n", "", 512 << 20},
		"neither":               {"", "", math.MaxInt64},
		"unreadable":            {"much", "MemTotal: much kB", math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			system := fstest.MapFS{}
			for path, text := range map[string]string{"sys/fs/cgroup/memory.max": c.group, "proc/meminfo": c.memory} {
				if text != "" {
					system[path] = &fstest.MapFile{Data: []byte(text)}
				}
			}
			require.Equal(t, c.want, heapLimit(system))
		})
	}
}
