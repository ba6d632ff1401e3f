package main

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 2, median([]float64{9, 1, 2}), 0)
	require.InDelta(t, 3, median([]float64{4, 9, 1, 2}), 0)
	require.True(t, math.IsNaN(median(nil)))
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	var l loaded
	require.True(t, math.IsNaN(l.percentile(50)))
	for i := range 101 {
		l.times = append(l.times, time.Duration(i)*time.Millisecond)
	}
	require.InDelta(t, 50, l.percentile(50), 1e-9)
	require.InDelta(t, 99, l.percentile(99), 1e-9)
	l.took = 2 * time.Second
	require.InDelta(t, 50.5, l.perSecond(), 1e-9)
}

// A ratio is the median of the ratios of the rounds, because a slow round is slow for both
// measurements.
func TestRatios(t *testing.T) {
	t.Parallel()
	b := &bench{}
	for _, round := range []struct{ insert, sync float64 }{{1, 2}, {10, 20}, {3, 15}} {
		b.add(insertAlone, round.insert)
		b.add(syncAlone, round.sync)
	}
	ratio, ok := b.reached(target{syncAlone, insertAlone, true, 3})
	require.True(t, ok)
	require.Equal(t, Ratio{Of: syncAlone, To: insertAlone, Value: 2, Least: 2, Most: 5, AtMost: true, Target: 3, Held: true}, ratio)

	for _, c := range []struct {
		target target
		isHeld bool
	}{
		{target{syncAlone, insertAlone, false, 2.5}, false},
		{target{syncAlone, insertAlone, false, 2.2}, true}, // missed by less than a tenth
		{target{syncAlone, "", true, 13.5}, false},         // 15 ms by itself
		{target{syncAlone, "", true, 14}, true},
	} {
		ratio, _ = b.reached(c.target)
		require.Equal(t, c.isHeld, ratio.Held, c.target)
	}
	_, ok = b.reached(target{syncMany, insertMany, false, 1})
	require.False(t, ok, "a missing measurement has no ratio")
}

func TestPrint(t *testing.T) {
	t.Parallel()
	r := &Report{Machine: "a machine", PostgreSQL: "15", Rounds: 1, Settings: map[string]string{"fsync": "on"}, Ratios: []Ratio{
		{Of: syncMany, To: insertMany, Value: 0.3, Target: 0.35}, {Of: idleCPU, Value: 0.8, AtMost: true, Target: 1, Held: true},
	}}
	r.Figures = append(r.Figures, &figures{Name: insertMany, Median: 12400, Least: 11.123, Most: 2})
	var text strings.Builder
	require.NoError(t, r.Print(&text))
	require.Contains(t, text.String(), "fsync=on")
	require.Regexp(t, `12400 +11\.1 +2\.00 +database: insert`, text.String())
	require.Regexp(t, `0\.30 .*≥ 0\.35 .*MISSED`, text.String())
	require.NotRegexp(t, `idle.*MISSED`, text.String())
}

func TestLoad(t *testing.T) {
	t.Parallel()
	prepared, done := 0, 0
	result, err := load(t.Context(), 3, 100*time.Millisecond, func(context.Context) (func() error, func(), error) {
		prepared++
		return func() error { time.Sleep(time.Millisecond); return nil }, func() { done++ }, nil
	})
	require.NoError(t, err)
	require.Equal(t, []int{3, 3}, []int{prepared, done})
	require.NotEmpty(t, result.times)

	failed := errors.New("failed")
	_, err = load(t.Context(), 1, time.Minute, func(context.Context) (func() error, func(), error) {
		return func() error { return failed }, func() {}, nil
	})
	require.ErrorIs(t, err, failed)
}

// The drain ends when its context ends.
func TestDrainEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := &doNothing{}
	w.left.Add(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, w.wait(ctx), context.Canceled)
	w.left.Done()
	require.NoError(t, w.wait(t.Context()))
}

func TestComparison(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	old := &Report{Program: "old", Figures: []*figures{{Name: syncMany, Median: 200}, {Name: idleCPU, Median: 1}}}
	require.NoError(t, printComparison(&text, []*Report{old}))
	require.Empty(t, text.String())
	require.NoError(t, printComparison(&text, []*Report{old, {Program: "new", Figures: []*figures{{Name: syncMany, Median: 250}}}}))
	require.Regexp(t, `200 +× 1\.00 +250 +× 1\.25 +synchronous`, text.String())
	require.Regexp(t, `1\.00 +× 1\.00 +- +service: processor`, text.String())
}
