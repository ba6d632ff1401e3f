package jobs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/jobs"
)

// The head of every batch goes before the rest of all others.
func TestPriorityOfItems(t *testing.T) {
	t.Parallel()
	of := func(first int32) int { return jobs.BatchItemRun{FirstItem: first}.InsertOpts().Priority }
	require.Equal(t, of(0), of(99))
	require.Less(t, of(99), of(100), "River takes the least first")
	require.Equal(t, of(100), of(1_000_000))
	chunk := jobs.BatchItemRun{FirstItem: 1000, IsChunk: true}.InsertOpts().Priority
	require.Less(t, of(99), chunk)
	require.Less(t, chunk, of(100), "a chunk waits for no window of items")
	require.Equal(t, jobs.QueueBatchItem, jobs.BatchItemRun{FirstItem: 100}.InsertOpts().Queue)
}
