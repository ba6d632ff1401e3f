package task

import (
	"encoding/json"
	"testing"

	"github.com/cockroachdb/apd/v3"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestShortRanks compares the ranks of short numbers with those of decimals.
func TestShortRanks(t *testing.T) {
	t.Parallel()
	numbers := rapid.OneOf(
		rapid.SampledFrom([]string{"0", "-0", "0.0", "1", "1.0", "-1", "1.05", "-1.05", "1e2", "100", "0.1", "-0.10", "-0.11", "999999999999999999", "0.00000000000000001"}),
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,2})(\.[0-9]{1,3})?`),
		rapid.StringMatching(`-?[1-9][0-9]{12,19}(\.[0-9]{1,8})?`),
	)
	ranked := 0
	rapid.Check(t, func(t *rapid.T) {
		var constants []cell
		for _, text := range rapid.SliceOfN(numbers, 0, 6).Draw(t, "constants") {
			number, err := literalOf(json.Number(text))
			require.NoError(t, err)
			constants = append(constants, cell{tests: []test{equals(number)}})
		}
		a := newAxis(constants)
		text := numbers.Draw(t, "value")
		d, _, err := apd.NewFromString(text)
		require.NoError(t, err)
		if rank, ok := a.rankShort(text); ok {
			ranked++
			require.Equal(t, a.rankNumber(d), rank, "%s among %v", text, a.numbers)
		}
		require.Equal(t, a.rankNumber(d), a.rank(json.Number(text)))
	})
	require.Positive(t, ranked)
}
