package execution

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"tranche/internal/engine"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/queries"
)

// pollInterval is how often a caller who waits for an execution that others
// drive looks for its end.
const pollInterval = 200 * time.Millisecond

// Run executes a request and waits for its end, at most for wait; zero waits
// as long as the workflow's time limit lets it run. If the wait is over first,
// the Execution has no result and goes on. A caller who goes away does not stop
// it; without a bound Run returns at its end even then. Errors: ErrNotActive, with
// which nothing is recorded; fault.Unavailable, with which it may be, and then goes on.
func (s *Service) Run(ctx context.Context, req Request, wait time.Duration) (Execution, error) {
	r, err := s.fresh(&req)
	if err != nil {
		return Execution{}, err
	}
	if s.life.Err() != nil || !s.running.begin() {
		return Execution{}, errStopping
	}
	if wait == 0 || !req.Plan.Effects {
		e, err := s.runHere(r)
		if err != nil || e.Result != nil {
			return e, err
		}
		return s.await(ctx, r, nil)
	}
	type ending struct {
		execution Execution
		err       error
	}
	ended := make(chan ending, 1)
	go func() {
		defer s.running.end()
		e, err := r.complete(s.life)
		ended <- ending{e, err}
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case e := <-ended:
		if e.err != nil || e.execution.Result != nil {
			return e.execution, e.err
		}
		return s.await(ctx, r, timer.C)
	case <-timer.C:
		// Nobody is told of an execution that is not recorded yet.
		select {
		case <-r.recorded:
			return r.ongoing(), nil
		case e := <-ended:
			if e.err != nil || e.execution.Result != nil {
				return e.execution, e.err
			}
			return r.ongoing(), nil
		case <-ctx.Done():
			return Execution{}, ctx.Err()
		}
	case <-ctx.Done():
		return Execution{}, ctx.Err()
	}
}

// runHere completes a run that running counts on the caller's goroutine: a switch to
// another would only delay the answer. The run goes on even if the caller has gone away.
func (s *Service) runHere(r *run) (Execution, error) {
	defer s.running.end()
	return r.complete(s.life)
}

// complete drives the run and writes its end. An execution that waits or that
// another process took over has no result.
func (r *run) complete(ctx context.Context) (Execution, error) {
	ctx = postgres.WithTenant(ctx, r.tenantID) // the life of a service is no tenant's
	f, err := r.drive(ctx)
	if err == nil && f != nil {
		err = r.finish(ctx, f)
	}
	if errors.Is(err, errLeaseLost) {
		return r.ongoing(), nil
	}
	if err != nil || f == nil {
		return r.ongoing(), err
	}
	return r.ended(f), nil
}

func (r *run) ended(f *Finished) Execution {
	result := f.Result // without the texts beside it, which nobody needs once they are written
	return Execution{ID: r.id, Status: f.Outcome.Status, CreatedAt: queries.CreatedAt(r.id), Result: &result}
}

func (r *run) ongoing() Execution {
	return Execution{ID: r.id, Status: engine.StatusRunning, CreatedAt: queries.CreatedAt(r.id)}
}

// await looks for the end of an execution that this process let go.
func (s *Service) await(ctx context.Context, r *run, over <-chan time.Time) (Execution, error) {
	for {
		select {
		case <-over:
			return r.ongoing(), nil
		case <-ctx.Done():
			return Execution{}, ctx.Err()
		case <-s.life.Done():
			return Execution{}, errStopping
		case <-time.After(pollInterval):
		}
		row, err := queries.New().ExecutionGetOutput(ctx, queries.OnPartition(s.Pool, r.id), queries.ExecutionGetOutputParams{TenantID: r.tenantID, ID: r.id})
		if err != nil {
			return Execution{}, postgres.Translate(err)
		}
		if row.Result != nil {
			result, err := ReadResult(row.Result)
			return Execution{ID: r.id, Status: engine.Status(row.Status), CreatedAt: queries.CreatedAt(r.id), Result: result}, err
		}
	}
}

// Start records a request together with a job that executes it. Errors: ErrNotActive,
// with which nothing is recorded; fault.Unavailable, with which it may be recorded, and
// then is executed.
func (s *Service) Start(ctx context.Context, req Request) (Execution, error) {
	r, err := s.fresh(&req)
	if err != nil {
		return Execution{}, err
	}
	row, err := r.insertion(engine.StatusPending)
	if err != nil {
		return Execution{}, err
	}
	row.HasJob = true
	accepted := Execution{ID: r.id, Status: engine.StatusPending, CreatedAt: queries.CreatedAt(r.id)}
	return accepted, r.insert(ctx, row, accepted)
}

// BorrowerIDMax is the most characters of an id of a borrower.
const BorrowerIDMax = 255

// CheckInput checks the input of an execution or an item against the schema of its
// workflow, and that the id of the borrower whom it names is not too long: the execution
// would be about no borrower.
func CheckInput(plan *workflow.Plan, input map[string]any) (map[string]any, []fault.Detail) {
	filled, faults := plan.CheckInput(input)
	named := filled
	if len(faults) > 0 {
		named = input
	}
	if id, ok := named["borrowerId"].(string); ok && utf8.RuneCountInString(id) > BorrowerIDMax {
		faults = append(faults, fault.Detail{Field: "borrowerId", Message: fmt.Sprintf("must have at most %d characters", BorrowerIDMax)})
	}
	return filled, faults
}

// BorrowerOf is the borrowerId that an input names, nil if that is no text
// (decisions 5.3).
func BorrowerOf(input map[string]any) *string {
	id, ok := input["borrowerId"].(string)
	if !ok || id == "" || utf8.RuneCountInString(id) > BorrowerIDMax {
		return nil
	}
	return &id
}
