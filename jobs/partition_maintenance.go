package jobs

import "github.com/riverqueue/river"

// PartitionMaintenance creates the partitions of the next months, drops partitions that are
// older than the retention, and deletes expired rows.
type PartitionMaintenance struct{}

// Kind names the job.
func (PartitionMaintenance) Kind() string { return "partition_maintenance" }

// InsertOpts puts it on the maintenance queue.
func (PartitionMaintenance) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: QueueMaintenance}
}
