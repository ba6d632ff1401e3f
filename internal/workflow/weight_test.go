package workflow

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWeightIsMovingAverage(t *testing.T) {
	t.Parallel()
	const heavy = 640_000
	w := new(Weight)
	learn := func(times, bytes int, failed bool) int64 {
		for range times {
			w.Learn(bytes, failed)
		}
		return w.Bytes()
	}
	require.Equal(t, int64(weightUnknown), w.Bytes(), "before anything has ended")
	require.Greater(t, learn(10, 0, false), int64(weightUnknown/2), "what ends first is what is light")
	require.Less(t, learn(1000, 0, false), int64(100))
	require.InEpsilon(t, heavy, learn(1000, heavy, false), 0.001)
	require.InEpsilon(t, heavy*31/32, learn(1, 0, false), 0.001, "one among many says little")

	require.InEpsilon(t, weightFailed, learn(1000, 0, true), 0.001, "failures say nothing of answers")
	require.InEpsilon(t, heavy, learn(1000, heavy, true), 0.001, "but for what they have held")
	light := learn(2000, 300, false)
	require.Equal(t, light, learn(1000, 0, true))

	(*Weight)(nil).Learn(1, false)
	require.Equal(t, int64(weightUnknown), (*Weight)(nil).Bytes())
}
