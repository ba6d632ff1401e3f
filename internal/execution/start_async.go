package execution

import (
	"context"
	"errors"

	"tranche/internal/engine"
	"tranche/internal/fault"
	"tranche/queries"
)

const (
	// placesMax is how many accepted executions a service drives at a time. More wait for
	// jobs, which any process works off.
	placesMax = 100
	// placeBytesMax is the longest input that waits in memory rather than for a job, which
	// reads it when there is room for it.
	placeBytesMax = 64 << 10
)

// Start records a request to be executed while nobody waits: at once by this process
// (Background), without a job as if a caller waited, or else by a job. Errors:
// ErrNotActive, with which nothing is recorded; fault.Unavailable, with which it may be,
// and then goes on.
func (s *Service) Start(ctx context.Context, req Request) (Execution, error) {
	r, err := s.fresh(&req)
	if err != nil {
		return Execution{}, err
	}
	row, err := r.insertion(engine.StatusPending)
	if err != nil {
		return Execution{}, err
	}
	accepted := Execution{ID: r.id, Status: engine.StatusPending, CreatedAt: queries.CreatedAt(r.id)}
	leave := s.Background.takePlace(row)
	if leave == nil {
		row.HasJob = true
		return accepted, r.insert(ctx, row, accepted)
	}
	isDriven := false
	defer func() {
		if !isDriven {
			leave()
		}
	}()
	row.Status, row.LeaseToken, row.LeaseProcessID = engine.StatusRunning, r.token, s.ProcessID
	row.StartedAt = s.Clock()
	row.DeadlineAt = row.StartedAt.Add(req.Plan.Timeout)
	if err := r.insert(ctx, row, accepted); err != nil {
		return accepted, r.unsure(err)
	}
	r.noteRecorded()
	r.service = s.Background
	r.engine.State.Deadline = row.DeadlineAt
	isDriven = true
	go func() {
		defer leave()
		r.goOn()
	}()
	return accepted, nil
}

// takePlace takes a place for an execution that is about to be recorded, until leave is
// called. It is nil if there is none for it.
func (s *Service) takePlace(row *newExecution) (leave func()) {
	if s == nil || s.life.Err() != nil || row.bytes() > placeBytesMax {
		return nil
	}
	select {
	case s.places <- struct{}{}:
		if !s.running.begin() { // a stop waits for it, unless it is over
			<-s.places
			return nil
		}
		return func() {
			s.running.end()
			<-s.places
		}
	default:
		return nil
	}
}

// goOn drives an execution that nobody waits for. What it cannot bring to an end it
// leaves to a job.
func (r *run) goOn() {
	err := fault.Safely(func() error {
		_, err := r.complete(r.service.life)
		return err
	})
	if errors.Is(err, fault.ErrPanic) {
		_ = r.giveUp(err)
	}
	if err != nil && !errors.Is(err, errStopping) {
		r.service.Log.WarnContext(r.service.life, "an execution goes on in a job", "executionId", r.id, "error", err)
	}
}
