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

// memoryUnknown is taken for the bytes of memory of a machine that does not say.
const memoryUnknown = 1 << 30

// parameters are the -c arguments of the server: what differs from
// PostgreSQL's defaults for one service on one machine, then the caller's.
func (o Options) parameters() []string {
	memory := cmp.Or(systemlimit.MemoryBytes(os.DirFS("/")), memoryUnknown)
	buffers := min(max(memory/4, 128<<20), 2<<30) >> 20
	settings := map[string]string{
		"listen_addresses":        "", // the socket is the only way in
		"port":                    "5432",
		"unix_socket_permissions": "0700",
		"cluster_name":            "tranche",
		"max_connections":         "200",
		"shared_buffers":          strconv.FormatInt(buffers, 10) + "MB",
		"effective_cache_size":    strconv.FormatInt(2*buffers, 10) + "MB",
		"max_wal_size":            "4GB",
		// What a large batch writes is used again by the next: whenever a segment of
		// the log has to be made, all commits wait.
		"min_wal_size":       "1GB",
		"checkpoint_timeout": "15min",
		"random_page_cost":   "1.1",
		"jit":                "off", // compiling costs more than our short queries
		// A list query takes one core, not all; and parallel workers need
		// /dev/shm, of which a container has 64 MB.
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

// plainEnvironment is the caller's without the PG* variables, which would
// redirect initdb and postgres.
func plainEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "PG") })
}
