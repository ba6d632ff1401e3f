package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/catalog"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/postgres"
	"tranche/internal/process"
	"tranche/internal/workflow"
	"tranche/jobs"
	"tranche/queries"
)

// Items with effects wait in chunks too, and become executions when they begin.
// A chunk is whose token it bears: who takes it puts one there, and the statement
// that begins items asks for it. So a job that runs again after a crash, or
// beside another one, takes the chunk, sees what of it has not begun, and begins
// that; whoever had the chunk before begins nothing more, and only ends what it
// has begun.

const (
	// chunkItemsOfEffects is how many items with effects wait in a chunk at most:
	// so few that several chunks run at a time.
	chunkItemsOfEffects = 250
	// callingMax is how many items with effects run at a time in this process.
	// Most of the time they wait for what they call, those of a target that does
	// not answer for long: a tenant by itself gets four fifths of the places, 500,
	// and others find some.
	callingMax   = 625
	callingGreed = 4
)

// waitsInChunk reports whether the items of a workflow wait in chunks until they
// run. Those that may wait for a signal are executions before, so that there is
// something to send it to.
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
	workflow *catalog.Workflow
	plan     *workflow.Plan
	custom   any
	isTest   bool
	token    uuid.UUID // of the chunk; the nil UUID unless this run has taken it
	chunk    queries.BatchChunkTakeRow

	running sync.WaitGroup
	mu      sync.Mutex
	begun   int   // items that are executions now
	refused bool  // an item was not let begin; nor will the others be
	held    bool  // a process that lives holds an item
	err     error // a *DownError only if there is no other
}

// runChunk runs the items of a chunk: in memory, if they have no effects and none
// has begun, else each under a lease.
func (s *Service) runChunk(ctx context.Context, run jobs.BatchItemRun) (execution.Holding, error) {
	r := &chunkRun{Service: s, BatchItemRun: run}
	look, err := s.q.BatchChunkLook(ctx, s.Pool, queries.BatchChunkLookParams{
		TenantID: run.TenantID, BatchID: run.BatchID, FirstItem: run.FirstItem,
	})
	if err != nil {
		return execution.Held, postgres.Translate(fmt.Errorf("look at chunk %d of batch %s: %w", run.FirstItem, run.BatchID, err))
	}
	if r.workflow, r.plan, err = s.Catalog.Plan(ctx, run.TenantID, look.WorkflowID); err != nil {
		return execution.Held, err
	}
	if look.IsWaiting && look.Token == nil && !r.plan.Effects {
		return execution.Held, s.runPureChunk(ctx, run.TenantID, run.BatchID, run.FirstItem, r.plan)
	}
	if look.IsWaiting && look.MayBegin {
		if err := r.take(ctx, &look); err != nil {
			return execution.Held, err
		}
	}
	if !look.IsWaiting || look.Token != nil {
		r.note(r.goOn(ctx)) // after taking it: until then, who had it may begin something
	}
	r.begin(ctx)
	r.running.Wait()
	return r.end(ctx)
}

// goOn starts the items of the range that have begun and are nobody's: their
// process died, or what they call was down.
func (r *chunkRun) goOn(ctx context.Context) (execution.Holding, error) {
	items, err := r.q.BatchItemsListBegun(ctx, r.Pool, queries.BatchItemsListBegunParams{
		TenantID: r.TenantID, BatchID: r.BatchID, FirstItem: r.FirstItem, EndItem: r.EndItem, DeadAfterSeconds: process.DeadAfter.Seconds(),
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
		if !r.start(ctx, func(func()) (execution.Holding, error) {
			return r.runEffects(ctx, r.TenantID, r.BatchID, item.ID, r.plan)
		}) {
			break
		}
	}
	return holding, nil
}

// take takes the chunk, unless another is faster, who begins its items then.
func (r *chunkRun) take(ctx context.Context, look *queries.BatchChunkLookRow) (err error) {
	if r.custom, err = customOf(r.BatchID, look.CustomInput); err != nil {
		return err
	}
	r.isTest = look.IsTest
	token, chunk, err := r.takeChunk(ctx, r.TenantID, r.BatchID, r.FirstItem, look.Token)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil {
		r.token, r.chunk = token, chunk
	}
	return err
}

// begin starts the items of the chunk, if this run has taken it.
func (r *chunkRun) begin(ctx context.Context) {
	for i := range r.chunk.ItemIndexes {
		if !r.start(ctx, func(leave func()) (execution.Holding, error) { return r.runNew(ctx, i, leave) }) {
			break
		}
	}
}

// start runs an item beside the others as soon as there is a place for it, which
// it may leave before its end is written; false if no more are to be started.
func (r *chunkRun) start(ctx context.Context, run func(leave func()) (execution.Holding, error)) bool {
	leave, err := r.calling.take(ctx, r.TenantID, r.BatchID)
	if err != nil {
		r.note(execution.Held, err)
		return false
	}
	if r.isRefused() {
		leave()
		return false
	}
	if wait := r.circuits.admit(r.TenantID, r.BatchID, r.Clock()); wait > 0 {
		leave()
		r.note(execution.Held, &DownError{Wait: wait})
		return false
	}
	r.running.Go(func() {
		defer leave()
		holding := execution.Held
		err := safely(func() (err error) {
			holding, err = run(leave)
			return err
		})
		r.note(holding, err)
	})
	return true
}

// runNew runs an item of the chunk that has not begun.
func (r *chunkRun) runNew(ctx context.Context, i int, leave func()) (execution.Holding, error) {
	input, err := exactjson.Decode([]byte(r.chunk.Inputs[i]))
	if err != nil {
		return execution.Held, fmt.Errorf("read item %d of batch %s: %w", r.chunk.ItemIndexes[i], r.BatchID, err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return execution.Held, err
	}
	object, _ := input.(map[string]any)
	item := execution.Item{
		TenantID: r.TenantID, ID: id, BatchID: r.BatchID, Plan: r.plan, Input: input, Custom: r.custom,
		BorrowerID: execution.BorrowerOf(object), IsTest: r.isTest, Attempt: 1, IsUnrecorded: true,
	}
	begins := &beginning{chunkRun: r, at: i, borrowerID: borrowerOf(object)}
	holding, err := r.drive(ctx, r.TenantID, r.BatchID, r.plan, func(ctx context.Context) (*execution.Finished, execution.Holding, error) {
		defer leave()
		return r.Executions.RunItem(ctx, item, begins.store)
	})
	if !begins.done {
		holding = execution.Held // by nobody: it waits in the chunk
	}
	return holding, err
}

// note keeps what came of an item.
func (r *chunkRun) note(holding execution.Holding, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if holding == execution.HeldElsewhere {
		r.held = true
	}
	if _, isDown := errors.AsType[*DownError](r.err); err != nil && (r.err == nil || isDown) {
		r.err = err
	}
}

func (r *chunkRun) noteBeginning(done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if done {
		r.begun++
	} else {
		r.refused = true
	}
}

func (r *chunkRun) isRefused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

// end removes the chunk if nothing of it waits any more, and says what came of
// the items.
func (r *chunkRun) end(ctx context.Context) (execution.Holding, error) {
	if r.token != uuid.Nil && r.begun == len(r.chunk.ItemIndexes) {
		err := r.q.BatchChunkDelete(ctx, r.Pool, queries.BatchChunkDeleteParams{
			TenantID: r.TenantID, BatchID: r.BatchID, FirstItem: r.FirstItem, Token: r.token,
		})
		r.note(execution.Held, postgres.Translate(err))
	}
	if r.held && r.err == nil {
		return execution.HeldElsewhere, nil
	}
	return execution.Held, r.err
}

// takeChunk takes a chunk from whoever held it (nil: nobody has yet), and returns
// what of it has not begun. pgx.ErrNoRows: another was faster, or all of its
// items are recorded.
func (s *Service) takeChunk(ctx context.Context, tenantID, batchID uuid.UUID, first int32, held *uuid.UUID) (token uuid.UUID, chunk queries.BatchChunkTakeRow, err error) {
	token = uuid.New()
	take := queries.BatchChunkTakeParams{TenantID: tenantID, BatchID: batchID, FirstItem: first, Held: held, Token: token}
	if held == nil {
		chunk, err = s.q.BatchChunkTake(ctx, s.Pool, take)
		return token, chunk, postgres.Translate(err)
	}
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		if _, err := s.q.BatchChunkTake(ctx, tx, take); err != nil {
			return err
		}
		// Nobody begins anything of it now, and what has begun is to be seen.
		rest, err := s.q.BatchChunkShrink(ctx, tx, queries.BatchChunkShrinkParams{TenantID: tenantID, BatchID: batchID, FirstItem: first, Token: token})
		if err != nil {
			return err
		}
		chunk = queries.BatchChunkTakeRow(rest)
		if len(rest.ItemIndexes) > 0 {
			return nil
		}
		return s.q.BatchChunkDelete(ctx, tx, queries.BatchChunkDeleteParams{TenantID: tenantID, BatchID: batchID, FirstItem: first, Token: token})
	})
	return token, chunk, err
}

// beginning is an item of a chunk that is to become an execution.
type beginning struct {
	*chunkRun
	at         int // in the chunk
	borrowerID string
	first      *execution.Checkpoint
	done       bool
}

// store makes a state of the item durable; with the first one it begins.
func (b *beginning) store(ctx context.Context, c *execution.Checkpoint) (isHeld bool, err error) {
	if !c.Begins {
		return b.storeNext(ctx, b.TenantID, b.BatchID, c)
	}
	b.first = c
	if err := b.beginnings.add(ctx, b.TenantID, b.BatchID, b); err != nil {
		return false, err
	}
	b.noteBeginning(b.done)
	return b.done, nil
}

// beginItems makes executions of items of chunks.
func (s *Service) beginItems(ctx context.Context, tenantID, batchID uuid.UUID, items []*beginning) error {
	p := queries.BatchChunkItemsBeginParams{
		TenantID: tenantID, BatchID: batchID, WorkflowType: items[0].workflow.Type, LeaseProcessID: s.Executions.ProcessID,
	}
	byID := make(map[uuid.UUID]*beginning, len(items))
	tokens := map[uuid.UUID]bool{}
	for _, it := range items {
		byID[it.first.ID] = it
		if !tokens[it.token] {
			tokens[it.token] = true
			p.Chunks = append(p.Chunks, it.FirstItem)
			p.Tokens = append(p.Tokens, it.token)
		}
		p.Ids = append(p.Ids, it.first.ID)
		p.ChunkTokens = append(p.ChunkTokens, it.token)
		p.LeaseTokens = append(p.LeaseTokens, it.first.LeaseToken)
		p.ItemIndexes = append(p.ItemIndexes, it.chunk.ItemIndexes[it.at])
		p.RowNumbers = append(p.RowNumbers, it.chunk.RowNumbers[it.at])
		p.FileNames = append(p.FileNames, it.chunk.FileNames[it.at])
		p.BorrowerIds = append(p.BorrowerIds, it.borrowerID)
		p.StartedAt = append(p.StartedAt, it.first.StartedAt)
		p.DeadlineAt = append(p.DeadlineAt, it.first.DeadlineAt)
		p.TasksCompleted = append(p.TasksCompleted, it.first.TasksCompleted)
		p.TasksFailed = append(p.TasksFailed, it.first.TasksFailed)
		p.Inputs = append(p.Inputs, it.chunk.Inputs[it.at])
		p.States = append(p.States, string(it.first.State))
	}
	begun, err := s.q.BatchChunkItemsBegin(ctx, s.Pool, p)
	if err != nil {
		return fmt.Errorf("begin %d items of batch %s: %w", len(items), batchID, err)
	}
	for _, id := range begun {
		byID[id].done = true
	}
	return nil
}
