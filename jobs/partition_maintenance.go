package jobs

import "github.com/riverqueue/river"

// PartitionMaintenance makes the partitions of the coming months.
type PartitionMaintenance struct{}

// Kind names the job.
func (PartitionMaintenance) Kind() string { return "partition_maintenance" }

// InsertOpts puts it on the maintenance queue.
func (PartitionMaintenance) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueMaintenance}
}
