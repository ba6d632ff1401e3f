package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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

const (
	// chunkItemsOfEffects is how many items with effects wait in a chunk at most:
	// so few that several chunks run at a time.
	chunkItemsOfEffects = 250
	// callingMax is how many items with effects run at a time in this process, until
	// they are recorded. Most of the time they wait for what they call, those of a
	// target that does not answer for long: a tenant by itself gets four fifths of
	// the places, 800, and others find some.
	callingMax   = 1000
	callingGreed = 4
	// An item takes a place more for each placeBytes of results that the items of its
	// workflow before it held: what services answer takes up to sixteen times its JSON
	// here, garbage included. The heaviest take placesAtMost, as many as a tenant by
	// itself leaves to others.
	placeBytes   = 32 << 10
	placesAtMost = callingMax / (callingGreed + 1)
	// lookAgainAfter is for how long items begin without another look at the batch: so
	// long after a pause it may still begin some.
	lookAgainAfter = 20 * time.Millisecond
)

// waitsInChunk reports whether the items of a workflow wait in chunks until they
// run. Items that may wait for a signal are recorded beforehand, so that there is an
// execution to send it to.
func waitsInChunk(plan *workflow.Plan) bool { return !plan.Effects || !plan.Waits() }

// chunkItems is how many items wait in a chunk at most.
func chunkItems(plan *workflow.Plan) int {
	if plan.Effects {
		return chunkItemsOfEffects
	}
	return chunkItemsMax
}

// chunkRun runs items of a chunk, one beside the other.
type chunkRun struct {
	*Service
	jobs.BatchItemRun
	workflow   *catalog.Workflow
	plan       *workflow.Plan
	custom     any
	isTest     bool
	*heldChunk              // the chunk; nil where there is none or nothing of it may begin
	came       limit.Ticket // its rank among those of the batch that wait for slots
	lookedAt   time.Time    // when it was last known that items may begin

	running       sync.WaitGroup
	mu            sync.Mutex
	recorded      int   // items of the chunk that are executions now
	heldElsewhere bool  // a process that lives holds an item
	err           error // a *DownError only if there is no other
}

// runChunk runs the items of a chunk: in memory, if they have no effects and none
// has begun, else one beside the other.
func (s *Service) runChunk(ctx context.Context, run jobs.BatchItemRun) (execution.Holding, error) {
	r := &chunkRun{Service: s, BatchItemRun: run, came: s.calling.Ticket(), lookedAt: s.Clock()}
	look, err := s.q.BatchChunkGetState(ctx, s.Pool, queries.BatchChunkGetStateParams{
		TenantID: run.TenantID, BatchID: run.BatchID, FirstItem: run.FirstItem, DeadAfterSeconds: liveness.DeadAfter.Seconds(),
	})
	if err != nil {
		return execution.Held, postgres.Translate(fmt.Errorf("look at chunk %d of batch %s: %w", run.FirstItem, run.BatchID, err))
	}
	if r.workflow, r.plan, err = s.Catalog.Plan(ctx, run.TenantID, look.WorkflowID); err != nil {
		return execution.Held, err
	}
	switch {
	case look.IsWaiting && look.Token == nil && !r.plan.Effects:
		return s.runPureChunk(ctx, run.TenantID, run.BatchID, run.FirstItem, r.plan)
	case s.isHeld(look.Token, look.HolderID, look.HolderLives):
		return execution.HeldElsewhere, nil
	case look.IsWaiting && look.MayBegin:
		r.isTest = look.IsTest
		if r.custom, err = customOf(run.BatchID, look.CustomInput); err != nil {
			return execution.Held, err
		}
		r.heldChunk, err = s.hold(ctx, run.TenantID, run.BatchID, run.FirstItem, look.Token)
		if err != nil || r.heldChunk == nil {
			return execution.HeldElsewhere, err
		}
	}
	isFirst := look.IsWaiting && look.Token == nil
	func() {
		defer r.end(ctx) // also after a panic
		if !isFirst {
			r.note(r.goOn(ctx)) // after taking it: until then, who had it may record something
		}
		r.begin(ctx)
	}()
	if !isFirst { // who had it may have died before it fed the batch
		_, err := s.advance(ctx, run.TenantID, run.BatchID, r.plan)
		r.note(execution.Held, err)
	}
	return r.result()
}

// goOn starts the items of the range that are recorded as running and that nobody drives:
// their process died, or what they call was down.
func (r *chunkRun) goOn(ctx context.Context) (execution.Holding, error) {
	items, err := r.q.BatchItemsListStarted(ctx, r.Pool, queries.BatchItemsListStartedParams{
		TenantID: r.TenantID, BatchID: r.BatchID, FirstItem: r.FirstItem, EndItem: r.EndItem, DeadAfterSeconds: liveness.DeadAfter.Seconds(),
	})
	if err != nil {
		return execution.Held, postgres.Translate(fmt.Errorf("list what has begun of batch %s: %w", r.BatchID, err))
	}
	holding := execution.Held
	for _, item := range items {
		if item.IsHeld {
			holding = execution.HeldElsewhere
			continue
		}
		leave := r.place(ctx, limit.Front) // their time runs
		if leave == nil {
			break
		}
		r.start(leave, func() (execution.Holding, error) {
			return r.runEffects(ctx, r.TenantID, r.BatchID, item.ID, r.plan)
		})
	}
	return holding, nil
}

// begin starts the items of the chunk, if this run has taken it.
func (r *chunkRun) begin(ctx context.Context) {
	if r.heldChunk == nil {
		return
	}
	for i := range r.row.ItemIndexes {
		leave := r.place(ctx, r.came)
		if leave == nil {
			return
		}
		if !r.mayBegin(ctx) {
			leave()
			return
		}
		r.start(leave, func() (execution.Holding, error) { return r.runNew(ctx, i) })
	}
}

// place waits for a place for one more item, which is to be left; nil if no more
// are to be started. Of the chunks that wait the one that came first gets it: while
// places are scarce few chunks are begun at a time, and items end about in their order.
func (r *chunkRun) place(ctx context.Context, came limit.Ticket) (leave func()) {
	leave, err := r.calling.Acquire(ctx, limit.Request{TenantID: r.TenantID, BatchID: r.BatchID, Ticket: came, Slots: placesOf(r.plan)})
	if err != nil {
		r.note(execution.Held, err)
		return nil
	}
	if wait := r.circuits.admit(r.TenantID, r.BatchID, r.Clock()); wait > 0 {
		leave()
		r.note(execution.Held, &DownError{Wait: wait})
		return nil
	}
	return leave
}

// placesOf is how many places an item takes.
func placesOf(plan *workflow.Plan) int {
	if !plan.Effects {
		return 1
	}
	return int(min(1+plan.Weight.Bytes()/placeBytes, placesAtMost))
}

// mayBegin reports whether further items may begin, by what was looked up less than
// lookAgainAfter ago: not once the batch is paused or cancelled or the chunk is lost.
func (r *chunkRun) mayBegin(ctx context.Context) bool {
	now := r.Clock()
	if now.Sub(r.lookedAt) < lookAgainAfter {
		return true
	}
	may, err := r.q.BatchChunkIsRunnable(ctx, r.Pool, queries.BatchChunkIsRunnableParams{
		TenantID: r.TenantID, BatchID: r.BatchID, FirstItem: r.FirstItem, Token: r.token,
	})
	if err != nil {
		r.note(execution.Held, postgres.Translate(fmt.Errorf("look at chunk %d of batch %s again: %w", r.FirstItem, r.BatchID, err)))
	}
	r.lookedAt = now
	return err == nil && may
}

// start runs an item beside the others. It keeps its place until it is recorded, so that
// no more calls begin while the database is slow.
func (r *chunkRun) start(leave func(), run func() (execution.Holding, error)) {
	r.running.Go(func() {
		defer leave()
		holding := execution.Held
		err := fault.Safely(func() (err error) {
			holding, err = run()
			return err
		})
		r.note(holding, err)
	})
}

// runNew runs an item of the chunk.
func (r *chunkRun) runNew(ctx context.Context, i int) (execution.Holding, error) {
	index := r.row.ItemIndexes[i]
	input, err := exactjson.Decode([]byte(r.row.Inputs[i]))
	if err != nil {
		return execution.Held, fmt.Errorf("read item %d of batch %s: %w", index, r.BatchID, err)
	}
	object, _ := input.(map[string]any)
	it := &chunkItem{chunkRun: r, at: i, id: itemID(r.row.IdsFrom, index-r.FirstItem), borrowerID: queries.Value(execution.BorrowerOf(object))}
	holding, err := r.drive(ctx, r.TenantID, r.BatchID, r.plan, it, func(ctx context.Context) (*execution.Finished, execution.Holding, error) {
		return r.Executions.RunItem(ctx, execution.Item{
			TenantID: r.TenantID, ID: it.id, BatchID: r.BatchID, Plan: r.plan, Input: input, Custom: r.custom,
			BorrowerID: execution.BorrowerOf(object), IsTest: r.isTest, Attempt: 1, IsUnrecorded: true,
		}, it.store)
	})
	if !it.isRecorded {
		holding = execution.Held // by nobody: it waits in the chunk
	}
	return holding, err
}

// note keeps what came of an item.
func (r *chunkRun) note(holding execution.Holding, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if holding == execution.HeldElsewhere {
		r.heldElsewhere = true
	}
	if _, isDown := errors.AsType[*DownError](r.err); err != nil && (r.err == nil || isDown) {
		r.err = err
	}
}

// end waits for the items that run, and then removes the chunk if nothing of it
// waits any more, or leaves it to whoever comes next.
func (r *chunkRun) end(ctx context.Context) {
	r.running.Wait()
	switch {
	case r.heldChunk == nil:
	case r.recorded == len(r.row.ItemIndexes):
		r.note(execution.Held, r.remove(ctx))
	default:
		r.note(execution.Held, r.letGo(ctx))
	}
}

// result says what came of the items.
func (r *chunkRun) result() (execution.Holding, error) {
	if r.heldElsewhere && r.err == nil {
		return execution.HeldElsewhere, nil
	}
	return execution.Held, r.err
}
