package execution

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/expression"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/queries"
)

// run is what all runs of an execution share. There are three kinds, which differ in when
// the execution is recorded and leased:
//
//   - startRun: a new execution. Its first write records it.
//   - resumedRun: a recorded execution that a job continues. It is leased before it runs.
//   - itemRun: a new item of a batch. Package batch records it.
type run struct {
	service  *Service
	tenantID uuid.UUID
	id       uuid.UUID
	batchID  *uuid.UUID // null for executions that are no items
	tags     []string
	engine   engine.Run
	lease    lease
	isLeased bool // the lease is recorded
	memory   memoryLease
	// signalsSeen is how many signals the engine has been told of.
	signalsSeen int64
}

// recorder makes the state of a run durable. Each kind of run has its own.
type recorder interface {
	// checkpoint stores the state in which effects begin.
	checkpoint(ctx context.Context, state *engine.State) error
	// suspend stores the state of an execution that waits until wakeAt, with a job.
	suspend(ctx context.Context, wakeAt time.Time) error
}

// drive runs an execution until it ends, waits, or cannot continue in this process. The
// caller writes a Finished that is returned. A nil Finished without an error means that
// the execution waits. After an error the lease is released.
func (r *run) drive(ctx context.Context, records recorder) (*Finished, error) {
	defer r.releaseMemory()
	running := workflow.WithTenant(ctx, r.tenantID)
	if r.engine.Plan.Effects {
		var remove func()
		running, remove = r.service.cancellable.add(running, r.id)
		defer remove()
	}
	verdict, err := r.service.Runner.Drive(running, &r.engine, records.checkpoint)
	switch {
	case isCancelled(running):
		return nil, errLeaseLost
	case err != nil && ctx.Err() != nil:
		return nil, errors.Join(errStopping, r.handOver(ctx))
	case err != nil:
		return nil, r.abandon(err)
	case verdict.Outcome == nil:
		return nil, r.abandon(records.suspend(ctx, verdict.WakeAt))
	}
	return r.finished(verdict.Outcome)
}

// abandon returns the error that keeps this process from continuing, and releases the
// lease in the background so that the next attempt can take it.
func (r *run) abandon(err error) error {
	if r.isLeased {
		r.service.abandon(r.lease, err)
	}
	return err
}

// handOver releases the lease while the process stops, so that another continues at once.
func (r *run) handOver(ctx context.Context) error {
	if !r.isLeased {
		return nil
	}
	return r.service.handOver(ctx, r.lease)
}

// connect gives the engine the services that effects need.
func (r *run) connect() {
	r.engine.Signals = r.signals
	if r.service.Callbacks != nil {
		r.engine.CallbackURL = func(path string) (string, error) {
			return r.service.Callbacks.URL(r.tenantID, r.id, path, r.engine.State.Attempt), nil
		}
	}
}

// signals loads the signals of the execution, by the path of their wait.
func (r *run) signals(ctx context.Context) (map[string]any, error) {
	rows, err := queries.New().ExecutionSignalList(ctx, r.service.Pool, queries.ExecutionSignalListParams{
		TenantID: r.tenantID, ExecutionID: r.id, Attempt: int32(r.engine.State.Attempt),
	})
	if err != nil {
		return nil, postgres.Translate(err)
	}
	r.signalsSeen = int64(len(rows))
	payloads := make(map[string]any, len(rows))
	for _, row := range rows {
		if payloads[row.TaskPath], err = exactjson.Decode(row.Payload); err != nil {
			return nil, fmt.Errorf("read a signal of execution %s: %w", r.id, err)
		}
	}
	return payloads, nil
}

// newRoot returns the value of execution in expressions (contract 4.7).
func newRoot(id uuid.UUID, attempt int, borrowerID *string, isTest bool) *expression.Execution {
	return &expression.Execution{
		ID: id.String(), CreatedAt: queries.CreatedAt(id), Attempt: attempt, BorrowerID: borrowerID, IsTest: isTest,
	}
}

// Finished is an execution that has ended and is not written yet.
type Finished struct {
	TenantID   uuid.UUID
	ID         uuid.UUID
	BatchID    *uuid.UUID // of an item, which package batch writes; else nil
	LeaseToken uuid.UUID  // the nil UUID if it ran without a lease
	Attempt    int
	StartedAt  time.Time
	DeadlineAt time.Time
	Outcome    *engine.Outcome
	Tags       []string // of the request, then of the end task
	Result     Result
	ResultText []byte // JSON of Result
	State      []byte // JSON of the engine's state
	At         time.Time
}

// finished returns the end of the run with an outcome.
func (r *run) finished(outcome *engine.Outcome) (*Finished, error) {
	f := &Finished{
		TenantID: r.tenantID, ID: r.id, BatchID: r.batchID, Attempt: r.engine.State.Attempt,
		StartedAt: r.engine.State.StartedAt, DeadlineAt: r.engine.State.Deadline,
		Outcome: outcome, At: r.engine.State.CompletedAt, Tags: r.tags,
	}
	if r.isLeased {
		f.LeaseToken = r.lease.token
	}
	for _, tag := range outcome.Tags {
		if !slices.Contains(f.Tags, tag) {
			f.Tags = append(slices.Clip(f.Tags), tag)
		}
	}
	r.engine.State.SetEndTags(f.Tags[len(r.tags):])
	var err error
	if f.Result, err = newResult(outcome); err != nil {
		return nil, fmt.Errorf("end execution %s: %w", r.id, err)
	}
	if f.ResultText, err = f.Result.shareText(); err != nil {
		return nil, fmt.Errorf("write the result of execution %s: %w", r.id, err)
	}
	if f.State, err = r.engine.State.JSON(); err != nil {
		return nil, fmt.Errorf("write the state of execution %s: %w", r.id, err)
	}
	r.service.NoteEnded(outcome.Status, 1)
	return f, nil
}

// dropValues frees decoded values of an execution that has ended. Their JSON is a fraction
// of their size and may wait in memory to be written.
func (r *run) dropValues(f *Finished) {
	r.engine, f.Outcome.Output, f.Outcome.CustomOutput = engine.Run{}, nil, nil
}

// NoteEnded reports executions that ended to Config.Ended. Package batch calls it for
// items that end without a run.
func (s *Service) NoteEnded(status engine.Status, n int) {
	if s.Ended != nil {
		s.Ended(status, n)
	}
}
