package main

import (
	"context"
	"errors"
)

const (
	// smallItems is the size of a batch that a large one must not hold up.
	smallItems = 1000
	// largeTimes is how many times as many items as the batches have the one has
	// that it runs beside.
	largeTimes = 3
)

// measureSmallBatch measures what another tenant's large batch does to small
// ones: how long these take one after the other, alone and beside it.
func (b *bench) measureSmallBatch(ctx context.Context) error {
	other, err := b.newTenant(ctx, "large")
	if err != nil {
		return err
	}
	for range 5 {
		took, err := b.runBatch(ctx, b.tenant, aliasPure, smallItems)
		if err != nil {
			return err
		}
		b.add(smallAlone, took.Seconds()*1000)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := b.runBatch(ctx, other, aliasPure, largeTimes*b.Items)
		ended <- err
	}()
	for n := 0; ; n++ {
		took, err := b.runBatch(ctx, b.tenant, aliasPure, smallItems)
		if err != nil {
			return err
		}
		select {
		case err := <-ended:
			if n == 0 && err == nil {
				return errors.New("the large batch ended before a small one")
			}
			return err
		default:
			b.add(smallBeside, took.Seconds()*1000)
		}
	}
}
