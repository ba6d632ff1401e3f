package workflow

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWeightIsTheAverageOfTheLast(t *testing.T) {
	t.Parallel()
	w := new(Weight)
	require.Equal(t, int64(weightUnknown), w.Bytes(), "before anything has ended")
	w.Learn(0)
	require.Equal(t, int64(1), w.Bytes(), "which is known to be nothing")
	for range 1000 {
		w.Learn(640_000)
	}
	require.InEpsilon(t, 640_000, w.Bytes(), 0.001)
	w.Learn(0)
	require.InEpsilon(t, 620_000, w.Bytes(), 0.001, "one among many says little")

	(*Weight)(nil).Learn(1)
	require.Equal(t, int64(weightUnknown), (*Weight)(nil).Bytes())
}
