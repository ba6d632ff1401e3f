package main

import (
	"context"
	"errors"
)

const (
	// smallItems is the size of a batch that must not wait for a large one.
	smallItems = 1000
	// largeTimes is the size of the large batch as a multiple of Config.Items.
	largeTimes = 3
)

// measureSmallBatch measures the time of small batches, alone and during another tenant's
// large batch.
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
