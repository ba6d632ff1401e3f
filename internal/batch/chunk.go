package batch

import "tranche/internal/workflow"

// Limits of a chunk: of the items that one transaction records, and of the items that wait
// in it until one job runs them.
const (
	ItemsMax      = 2_000_000 // of a batch
	ChunkItemsMax = 1000
	ChunkBytesMax = 4 << 20
	// ChunkItemsEffectsMax is the limit for items with effects. It is small, so that several
	// chunks run concurrently.
	ChunkItemsEffectsMax = 250
)

// WaitsInChunk reports whether the items of a workflow wait in chunks until they run. An
// item that may wait for a signal is recorded before, so that there is an execution to
// send the signal to.
func WaitsInChunk(plan *workflow.Plan) bool { return !plan.Effects || !plan.Waits() }

// ChunkItems returns how many items of a plan a chunk has at most.
func ChunkItems(plan *workflow.Plan) int {
	if plan.Effects {
		return ChunkItemsEffectsMax
	}
	return ChunkItemsMax
}
