package batch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
)

const (
	// gatherTime is how long items that end are gathered before they are
	// written together.
	gatherTime = 5 * time.Millisecond
	// groupWriteTimeMax bounds one attempt to write a group.
	groupWriteTimeMax = 30 * time.Second
	// groupRetryWait is the pause before another attempt while the database is
	// away: what effects gave must not be lost for that.
	groupRetryWait = 500 * time.Millisecond
)

// gatherer writes the items of a batch that end at about the same time in one
// transaction: one writer a batch, which takes whatever has come meanwhile.
type gatherer struct {
	write  func(ctx context.Context, tenantID, batchID uuid.UUID, plan *workflow.Plan, items []*ended) error
	mu     sync.Mutex
	groups map[uuid.UUID]*group
}

// group is the items of one batch that wait to be written.
type group struct {
	tenantID, batchID uuid.UUID
	plan              *workflow.Plan
	waiting           []*arrival
}

type arrival struct {
	ctx  context.Context //nolint:containedctx // of the job that waits for the answer
	item *ended
	done chan error
}

func newGatherer(write func(context.Context, uuid.UUID, uuid.UUID, *workflow.Plan, []*ended) error) *gatherer {
	return &gatherer{write: write, groups: map[uuid.UUID]*group{}}
}

// add hands an item over and waits until it is written or ctx ends.
func (g *gatherer) add(ctx context.Context, tenantID, batchID uuid.UUID, plan *workflow.Plan, item *ended) error {
	a := &arrival{ctx: ctx, item: item, done: make(chan error, 1)}
	g.mu.Lock()
	waiting := g.groups[batchID]
	if waiting == nil {
		waiting = &group{tenantID: tenantID, batchID: batchID, plan: plan}
		g.groups[batchID] = waiting
		go g.serve(context.WithoutCancel(ctx), waiting)
	}
	waiting.waiting = append(waiting.waiting, a)
	g.mu.Unlock()
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serve writes what waits until nothing does.
func (g *gatherer) serve(ctx context.Context, waiting *group) {
	for {
		time.Sleep(gatherTime)
		g.mu.Lock()
		taken := waiting.waiting
		waiting.waiting = nil
		if len(taken) == 0 {
			delete(g.groups, waiting.batchID)
		}
		g.mu.Unlock()
		if len(taken) == 0 {
			return
		}
		g.writeAll(ctx, waiting, taken)
	}
}

// writeAll writes items together; those that cannot be written with their
// neighbours one by one, so that none fails for another.
func (g *gatherer) writeAll(ctx context.Context, waiting *group, taken []*arrival) {
	err := g.tryWrite(ctx, waiting, taken)
	for _, a := range taken {
		if err != nil && len(taken) > 1 && a.ctx.Err() == nil {
			a.done <- g.tryWrite(ctx, waiting, []*arrival{a})
			continue
		}
		a.done <- err
	}
}

// tryWrite writes items, again and again while the database is away and anybody
// waits for them.
func (g *gatherer) tryWrite(ctx context.Context, waiting *group, taken []*arrival) error {
	items := make([]*ended, len(taken))
	for i, a := range taken {
		items[i] = a.item
	}
	for {
		err := g.writeOnce(ctx, waiting, items)
		if !errors.Is(err, fault.Unavailable) || allGone(taken) {
			return err
		}
		time.Sleep(groupRetryWait)
	}
}

func (g *gatherer) writeOnce(ctx context.Context, waiting *group, items []*ended) error {
	ctx, cancel := context.WithTimeout(ctx, groupWriteTimeMax)
	defer cancel()
	return postgres.Translate(g.write(ctx, waiting.tenantID, waiting.batchID, waiting.plan, items))
}

func allGone(taken []*arrival) bool {
	for _, a := range taken {
		if a.ctx.Err() == nil {
			return false
		}
	}
	return true
}
