package main

import (
	"context"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// loaded is the result of a load.
type loaded struct {
	times []time.Duration // of the counted calls, sorted
	took  time.Duration
	calls int // all calls
}

// perSecond returns the rate of all callers together.
func (l loaded) perSecond() float64 { return float64(len(l.times)) / l.took.Seconds() }

// percentile returns a percentile of the times in milliseconds.
func (l loaded) percentile(p float64) float64 {
	if len(l.times) == 0 {
		return math.NaN()
	}
	return milliseconds(l.times[int(p/100*float64(len(l.times)-1))])
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// load lets each caller repeat its call, which prepare returns, for the duration of span.
// Calls in the first tenth of the span are not counted, because they fill caches and plan
// statements.
func load(ctx context.Context, callers int, span time.Duration, prepare func(context.Context) (call func() error, done func(), err error)) (loaded, error) {
	group, ctx := errgroup.WithContext(ctx)
	times := make([][]time.Duration, callers)
	made := make([]int, callers)
	ready := make(chan struct{})
	calls := make([]func() error, callers)
	for i := range callers {
		call, done, err := prepare(ctx)
		if err != nil {
			return loaded{}, err
		}
		defer done()
		calls[i] = call
	}
	begin := time.Now()
	counted, end := begin.Add(span/10), begin.Add(span+span/10)
	for i, call := range calls {
		group.Go(func() error {
			<-ready
			for now := time.Now(); now.Before(end) && ctx.Err() == nil; {
				if err := call(); err != nil {
					return err
				}
				made[i]++
				after := time.Now()
				if now.After(counted) {
					times[i] = append(times[i], after.Sub(now))
				}
				now = after
			}
			return nil
		})
	}
	close(ready)
	err := group.Wait()
	result := loaded{times: slices.Concat(times...), took: time.Since(counted)}
	slices.Sort(result.times)
	for _, n := range made {
		result.calls += n
	}
	return result, err
}
