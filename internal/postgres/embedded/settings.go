package embedded

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"tranche/internal/systemlimit"
)

// memoryDefault is the assumed memory if the system does not report it.
const memoryDefault = 1 << 30

// parameters returns the -c arguments of the server: settings for one service on one machine,
// and the caller's settings, which override them.
func (o Options) parameters() []string {
	memory := cmp.Or(systemlimit.MemoryBytes(os.DirFS("/")), memoryDefault)
	buffers := min(max(memory/4, 128<<20), 2<<30) >> 20
	settings := map[string]string{
		"listen_addresses":        "", // only the socket
		"port":                    "5432",
		"unix_socket_permissions": "0700",
		"cluster_name":            "tranche",
		"max_connections":         "200",
		"shared_buffers":          strconv.FormatInt(buffers, 10) + "MB",
		"effective_cache_size":    strconv.FormatInt(2*buffers, 10) + "MB",
		"max_wal_size":            "4GB",
		// Keeps WAL segments for reuse. While PostgreSQL creates a segment, all commits wait.
		"min_wal_size":       "1GB",
		"checkpoint_timeout": "15min",
		"random_page_cost":   "1.1",
		"jit":                "off", // compilation takes longer than our short queries
		// A list query uses one core. Parallel workers also need /dev/shm, which has only
		// 64 MB in a container.
		"max_parallel_workers_per_gather": "0",
		"timezone":                        "UTC",
		"log_timezone":                    "UTC",
		"lc_messages":                     "C",
	}
	if o.Volatile {
		maps.Copy(settings, map[string]string{
			"fsync":              "off",
			"synchronous_commit": "off",
			"full_page_writes":   "off",
			"max_connections":    "500",
			"shared_buffers":     "128MB",
			"max_wal_size":       "1GB",
			"min_wal_size":       "80MB",
		})
	}
	maps.Copy(settings, o.Settings)
	args := make([]string, 0, 2*len(settings))
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", fmt.Sprintf("%s=%s", name, settings[name]))
	}
	return args
}

// plainEnvironment returns the environment without the PG* variables, which affect initdb and
// postgres.
func plainEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "PG") })
}
