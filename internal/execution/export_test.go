package execution

import (
	"context"
	"time"

	"github.com/google/uuid"

	"tranche/internal/limit"
)

// Continue is RunLeased with its last write, as the job of an execution that is
// no item of a batch makes it.
func (s *Service) Continue(ctx context.Context, tenantID, id uuid.UUID) (Holding, error) {
	f, holding, err := s.RunLeased(ctx, tenantID, id)
	if err != nil || f == nil {
		return holding, err
	}
	return s.End(ctx, f)
}

// AroundInserts has what happens around the statements that record executions
// decided by the caller, who makes them, or does not, or later.
func (s *Service) AroundInserts(around func(insert func() error) error) {
	write := s.inserts.small.write
	s.inserts.small.write = func(ctx context.Context, executions []*newExecution) (inserted []bool, err error) {
		err = around(func() error {
			inserted, err = write(context.WithoutCancel(ctx), executions)
			return err
		})
		return inserted, err
	}
}

// Queued returns how many wait to be recorded.
func (s *Service) Queued() int {
	s.inserts.small.mu.Lock()
	defer s.inserts.small.mu.Unlock()
	return len(s.inserts.small.queue)
}

// HoldReleases has the first statement that gives leases up wait until so many more
// are to be given up, and returns how many there were of such statements.
func (s *Service) HoldReleases(more int) (statements func() int) {
	write := s.releases.write
	made := 0
	s.releases.write = func(ctx context.Context, leases []lease) ([]int64, error) {
		for made++; made == 1; time.Sleep(time.Millisecond) {
			s.releases.mu.Lock()
			queued := len(s.releases.queue)
			s.releases.mu.Unlock()
			if queued >= more {
				break
			}
		}
		return write(ctx, leases)
	}
	return func() int { return made }
}

// PlacesMax is how many accepted executions a service drives at a time, and PlaceBytesMax
// how long the input of one may be.
const (
	PlacesMax     = placesMax
	PlaceBytesMax = placeBytesMax
)

// AnswerWaitMax is how long a large answer waits for the memory limit.
const AnswerWaitMax = answerWaitMax

// LimitMemory replaces the memory limit of large answers.
func (s *Service) LimitMemory(bytes int64) *limit.PerTenant {
	s.answers = limit.NewPerTenant(bytes)
	return s.answers
}
