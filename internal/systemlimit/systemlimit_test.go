package systemlimit

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestMemoryBytes(t *testing.T) {
	t.Parallel()
	const machine = "MemFree:        3000000 kB\nMemTotal:       8388608 kB\n"
	for name, c := range map[string]struct {
		group, memory string
		want          int64
	}{
		"machine without a limit": {"max\n", machine, 8 << 30},
		"group below the machine": {"1073741824\n", machine, 1 << 30},
		"group above the machine": {"99999999999999\n", machine, 8 << 30},
		"group without meminfo":   {"1073741824\n", "", 1 << 30},
		"neither known":           {"", "", 0},
		"unreadable":              {"much", "MemTotal: much kB", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			system := fstest.MapFS{}
			for path, text := range map[string]string{"sys/fs/cgroup/memory.max": c.group, "proc/meminfo": c.memory} {
				if text != "" {
					system[path] = &fstest.MapFile{Data: []byte(text)}
				}
			}
			require.Equal(t, c.want, MemoryBytes(system))
		})
	}
}
