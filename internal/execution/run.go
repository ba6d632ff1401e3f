package execution

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"tranche/internal/engine"
	"tranche/internal/expression"
	"tranche/queries"
)

// run is one execution that this process drives. Of each kind another function begins it,
// and it is recorded and leased at another time:
//
//   - A request of a caller (fresh) is recorded by its first write: with a lease when its
//     first effect begins (record), without one when it ends before (recordFinished).
//   - A request that nobody waits for (Start) is recorded with a lease and then driven, or
//     left to a job.
//   - An execution that a job goes on with (lease) is recorded, and leased before it is
//     driven.
//   - An item of a batch (runOf) is package batch's to record. It is leased with the first
//     state that is stored of it (store), and never if it ends before that.
//
// End, LetGo and unsure make runs that are not driven, for a single write.
type run struct {
	service  *Service
	tenantID uuid.UUID
	id       uuid.UUID
	// token is that of the lease. Every write to what is leased names it, and writes
	// nothing where the row has another (errLeaseLost). It is chosen before the lease
	// begins; of an item it is the nil UUID until then.
	token   uuid.UUID
	engine  engine.Run
	tags    []string
	batchID *uuid.UUID // of an item; nil for other executions

	request  *Request      // of a caller, until it is recorded; else nil
	recorded chan struct{} // of a request, closed once it is recorded
	hasNoJob bool          // of a request: who gives the lease up inserts a job

	signalsSeen int64 // signals that the engine was last told of
	isAdmitted  bool  // by package batch, and what it holds with it
	memory      memoryLease
}

// connect gives the engine what a run with effects needs of the service.
func (r *run) connect() {
	r.engine.Signals = r.signals
	if r.service.Callbacks != nil {
		r.engine.CallbackURL = func(path string) (string, error) {
			return r.service.Callbacks.URL(r.tenantID, r.id, path, r.engine.State.Attempt), nil
		}
	}
	if !r.isAdmitted {
		r.engine.AcquireMemory = r.acquireMemory
	}
}

// fresh returns the run of an execution that is not recorded yet.
func (s *Service) fresh(r *Request) (*run, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make an id: %w", err)
	}
	state := engine.NewState(r.Plan, id.String())
	made := &run{
		service:  s,
		tenantID: r.TenantID,
		id:       id,
		token:    uuid.New(),
		tags:     r.Tags,
		request:  r,
		recorded: make(chan struct{}),
		hasNoJob: true,
		engine: engine.Run{
			Plan: r.Plan, State: state, Input: r.Input,
			Execution: root(id, state.Attempt, r.BorrowerID, r.IsTest),
		},
	}
	if r.Plan.Effects {
		made.connect()
	}
	return made, nil
}

// noteRecorded is called when the first write of a request is committed.
func (r *run) noteRecorded() {
	r.request = nil
	close(r.recorded)
}

// root is what expressions see as execution (decisions 4.7).
func root(id uuid.UUID, attempt int, borrowerID *string, isTest bool) *expression.Execution {
	return &expression.Execution{
		ID: id.String(), CreatedAt: queries.CreatedAt(id), Attempt: attempt, BorrowerID: borrowerID, IsTest: isTest,
	}
}

// Finished is an execution that has ended and is not written yet.
type Finished struct {
	TenantID   uuid.UUID
	ID         uuid.UUID
	BatchID    *uuid.UUID // of an item, which package batch writes; else nil
	LeaseToken uuid.UUID  // the nil UUID of one that ran without a lease
	Attempt    int
	StartedAt  time.Time
	DeadlineAt time.Time
	Outcome    *engine.Outcome
	Tags       []string // the request's and the end task's
	Result     Result
	ResultText []byte // JSON of Result
	State      []byte // JSON of the engine's state
	At         time.Time
}

func finished(r *run, outcome *engine.Outcome) (*Finished, error) {
	f := &Finished{
		TenantID: r.tenantID, ID: r.id, BatchID: r.batchID, LeaseToken: r.token, Attempt: r.engine.State.Attempt,
		StartedAt: r.engine.State.StartedAt, DeadlineAt: r.engine.State.Deadline,
		Outcome: outcome, At: r.engine.State.CompletedAt, Tags: r.tags,
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

// NoteEnded tells Ended of executions; of those too that ended without a run, by
// whoever has recorded that.
func (s *Service) NoteEnded(status engine.Status, n int) {
	if s.Ended != nil {
		s.Ended(status, n)
	}
}
