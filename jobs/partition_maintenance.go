package jobs

import "github.com/riverqueue/river"

// PartitionMaintenance makes the partitions of the coming months, drops old ones
// where the operator asks for it, and sweeps what has expired.
type PartitionMaintenance struct{}

// Kind names the job.
func (PartitionMaintenance) Kind() string { return "partition_maintenance" }

// InsertOpts puts it on the maintenance queue.
func (PartitionMaintenance) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueMaintenance}
}
