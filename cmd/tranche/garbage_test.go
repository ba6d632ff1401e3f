package main

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGarbageBesideWhatIsInUse(t *testing.T) {
	for inUse, percent := range map[uint64]int{0: 300, 10e6: 300, 40e6: 250, 80e6: 125, 100e6: 100, 4e9: 100} {
		require.Equal(t, percent, garbagePercent(inUse), "beside %d bytes", inUse)
	}
}

// TestGarbageIsBoundAgain looks at what holds while much is in use, and after that. It
// goes on in the process of the tests, as it does in that of the program.
func TestGarbageIsBoundAgain(t *testing.T) {
	percent := func() uint64 {
		runtime.GC()
		time.Sleep(time.Millisecond) // what follows a collection has a goroutine of its own
		now := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(now)
		return now[0].Value.Uint64()
	}
	boundGarbage()
	used := make([]byte, garbageBytes)
	require.Eventually(t, func() bool { return percent() == garbagePercentMin }, 10*time.Second, time.Millisecond)
	runtime.KeepAlive(used)
	require.Eventually(t, func() bool { return percent() > garbagePercentMin }, 10*time.Second, time.Millisecond)
}
