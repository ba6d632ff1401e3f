package runner

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tranche/internal/batch"
	"tranche/internal/catalog"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/limit"
	"tranche/internal/liveness"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/jobs"
	"tranche/queries"
)

// pollInterval is how long items begin without another query for a pause: so long after a
// pause, some may still begin.
const pollInterval = 20 * time.Millisecond

// runChunk runs the items of a chunk: in memory if they have no effects and none has begun,
// else concurrently under a lease of the chunk.
func (r *Runner) runChunk(ctx context.Context, key batch.Key, job jobs.BatchItemRun) (execution.Holding, error) {
	ticket := r.slots.Ticket()
	state, err := r.q.BatchChunkGetState(ctx, r.Pool, queries.BatchChunkGetStateParams{
		TenantID: key.TenantID, BatchID: key.ID, FirstItem: job.FirstItem, DeadAfterSeconds: liveness.DeadAfter.Seconds(),
	})
	if err != nil {
		return execution.Held, postgres.Translate(fmt.Errorf("get the state of chunk %d of batch %s: %w", job.FirstItem, key.ID, err))
	}
	w, plan, err := r.Catalog.Plan(ctx, key.TenantID, state.WorkflowID)
	if err != nil {
		return execution.Held, err
	}
	isFirstRun := state.IsWaiting && state.Token == nil
	if isFirstRun && !plan.Effects {
		return r.runPureChunk(ctx, key, job.FirstItem, plan)
	}
	if r.isLeased(state.Token, state.HolderID, state.HolderLives) {
		return execution.HeldElsewhere, nil
	}
	run := &chunkRun{r: r, key: key, job: job, workflow: w, plan: plan, isTest: state.IsTest, ticket: ticket, polledAt: r.Clock()}
	if state.IsWaiting && state.MayBegin {
		if run.custom, err = decodeCustom(key.ID, state.CustomInput); err != nil {
			return execution.Held, err
		}
		l, isAcquired, err := r.acquireLease(ctx, key, job.FirstItem, state.Token)
		if err != nil || !isAcquired {
			return execution.HeldElsewhere, err
		}
		run.runLeased(ctx, l, isFirstRun)
	} else {
		run.resume(ctx)
		run.items.Wait()
	}
	if !isFirstRun {
		// The previous worker may have died before it dispatched the next items.
		_, err := r.Dispatcher.Advance(ctx, key, plan)
		run.note(execution.Held, err)
	}
	return run.result()
}

// chunkRun is one run of a chunk's items, which run concurrently.
type chunkRun struct {
	r        *Runner
	key      batch.Key
	job      jobs.BatchItemRun
	workflow *catalog.Workflow
	plan     *workflow.Plan
	custom   any
	isTest   bool
	ticket   limit.Ticket // position among the requests for slots of the batch
	polledAt time.Time    // when it was last known that items may begin

	items         sync.WaitGroup // that run
	mu            sync.Mutex
	recorded      int   // items of the chunk that have a row now
	heldElsewhere bool  // a live process holds an item
	err           error // a *CircuitOpenError only if there is no other
}

// runLeased runs the items of a leased chunk. It continues items that an earlier run has
// begun, after the lease ensures that the worker of that run records nothing more.
func (run *chunkRun) runLeased(ctx context.Context, l *lease, isFirstRun bool) {
	defer func() { // also after a panic
		run.items.Wait()
		run.endLease(ctx, l)
	}()
	if !isFirstRun {
		run.resume(ctx)
	}
	run.begin(ctx, l)
}

// endLease removes the chunk if all of its items are recorded, else releases it.
func (run *chunkRun) endLease(ctx context.Context, l *lease) {
	if run.recorded == len(l.row.ItemIndexes) {
		run.note(execution.Held, l.remove(ctx))
		return
	}
	run.note(execution.Held, l.release(ctx))
}

// resume starts the recorded items of the range that are running and that no live process
// holds: their process died, or their target was unavailable.
func (run *chunkRun) resume(ctx context.Context) {
	items, err := run.r.q.BatchItemsListStarted(ctx, run.r.Pool, queries.BatchItemsListStartedParams{
		TenantID: run.key.TenantID, BatchID: run.key.ID, FirstItem: run.job.FirstItem, EndItem: run.job.EndItem, DeadAfterSeconds: liveness.DeadAfter.Seconds(),
	})
	if err != nil {
		run.note(execution.Held, postgres.Translate(fmt.Errorf("list the running items of batch %s: %w", run.key.ID, err)))
		return
	}
	for _, item := range items {
		if item.IsHeld {
			run.note(execution.HeldElsewhere, nil)
			continue
		}
		release, ok := run.acquireSlots(ctx, limit.Front) // their time limits are running
		if !ok {
			return
		}
		run.start(release, func() (execution.Holding, error) {
			return run.r.runRecorded(ctx, run.key, run.plan, item.ID)
		})
	}
}

// begin starts the items of a leased chunk.
func (run *chunkRun) begin(ctx context.Context, l *lease) {
	for i := range l.row.ItemIndexes {
		release, ok := run.acquireSlots(ctx, run.ticket)
		if !ok {
			return
		}
		if !run.mayBegin(ctx, l) {
			release()
			return
		}
		run.start(release, func() (execution.Holding, error) { return run.runItem(ctx, l, i) })
	}
}

// acquireSlots waits for the slots of one more item. It returns false if no more items are to
// be started. The chunk of a batch with the lowest ticket gets its slots first, so that few
// chunks are partly run and items end about in their order.
func (run *chunkRun) acquireSlots(ctx context.Context, ticket limit.Ticket) (release func(), ok bool) {
	release, err := run.r.slots.Acquire(ctx, limit.Request{TenantID: run.key.TenantID, BatchID: run.key.ID, Slots: slotsOf(run.plan), Ticket: ticket})
	if err != nil {
		run.note(execution.Held, err)
		return nil, false
	}
	if wait := run.r.circuits.admit(run.key, run.r.Clock()); wait > 0 {
		release()
		run.note(execution.Held, &CircuitOpenError{Wait: wait})
		return nil, false
	}
	return release, true
}

// mayBegin reports whether more items may begin: not after the batch is paused or cancelled,
// or the lease is lost. The answer is at most pollInterval old.
func (run *chunkRun) mayBegin(ctx context.Context, l *lease) bool {
	now := run.r.Clock()
	if now.Sub(run.polledAt) < pollInterval {
		return true
	}
	may, err := run.r.q.BatchChunkIsRunnable(ctx, run.r.Pool, queries.BatchChunkIsRunnableParams{
		TenantID: run.key.TenantID, BatchID: run.key.ID, FirstItem: l.first, Token: l.token,
	})
	if err != nil {
		run.note(execution.Held, postgres.Translate(fmt.Errorf("poll chunk %d of batch %s: %w", l.first, run.key.ID, err)))
	}
	run.polledAt = now
	return err == nil && may
}

// start runs an item concurrently. The item keeps its slots until it is recorded, so that no
// more calls begin while the database is slow.
func (run *chunkRun) start(release func(), item func() (execution.Holding, error)) {
	run.items.Go(func() {
		defer release()
		holding := execution.Held
		err := fault.Safely(func() (err error) {
			holding, err = item()
			return err
		})
		run.note(holding, err)
	})
}

// runItem runs the item at a position of a leased chunk.
func (run *chunkRun) runItem(ctx context.Context, l *lease, at int) (execution.Holding, error) {
	index := l.row.ItemIndexes[at]
	input, err := exactjson.Decode([]byte(l.row.Inputs[at]))
	if err != nil {
		return execution.Held, fmt.Errorf("read item %d of batch %s: %w", index, run.key.ID, err)
	}
	object, _ := input.(map[string]any)
	borrowerID := execution.BorrowerOf(object)
	it := &chunkItem{r: run.r, key: run.key, plan: run.plan, row: &chunkRow{
		id: itemID(l.row.IdsFrom, index-run.job.FirstItem), first: l.first, token: l.token, workflowType: run.workflow.Type,
		index: index, rowNumber: l.row.RowNumbers[at], fileName: l.row.FileNames[at], input: l.row.Inputs[at], borrowerID: queries.Value(borrowerID),
	}}
	holding, err := it.run(ctx, execution.Item{
		TenantID: run.key.TenantID, ID: it.row.id, BatchID: run.key.ID, Plan: run.plan, Input: input, Custom: run.custom,
		BorrowerID: borrowerID, IsTest: run.isTest, Attempt: 1, IsUnrecorded: true,
	})
	if !it.isRecorded {
		return execution.Held, err // it stays in the chunk, and no process holds it
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	run.recorded++
	return holding, err
}

// note keeps the result of an item.
func (run *chunkRun) note(holding execution.Holding, err error) {
	run.mu.Lock()
	defer run.mu.Unlock()
	if holding == execution.HeldElsewhere {
		run.heldElsewhere = true
	}
	if err != nil && (run.err == nil || isCircuitOpen(run.err)) {
		run.err = err
	}
}

// result returns the result of the job.
func (run *chunkRun) result() (execution.Holding, error) {
	if run.heldElsewhere && run.err == nil {
		return execution.HeldElsewhere, nil
	}
	return execution.Held, run.err
}
