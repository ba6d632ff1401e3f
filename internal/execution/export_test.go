package execution

import (
	"context"
	"time"

	"github.com/google/uuid"

	"tranche/internal/limit"
	"tranche/queries"
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

// AroundInserts replaces the statements that record executions: around decides when, and
// whether, each of them is executed.
func (s *Service) AroundInserts(around func(insert func() error) error) {
	s.inserts = s.newInserts(func(ctx context.Context, db queries.DBTX, executions []*newExecution) (inserted []bool, err error) {
		err = around(func() error {
			inserted, err = insertExecutions(context.WithoutCancel(ctx), db, executions)
			return err
		})
		return inserted, err
	})
}

// Queued returns how many executions wait to be recorded.
func (s *Service) Queued() int { return s.inserts.Queued(smallItems) }

// DelayReleases delays the first statement that releases leases until all of them are in it
// or queued. It returns the number of these statements.
func (s *Service) DelayReleases(all int) (statements func() int) {
	made := 0
	s.releases = s.newReleases(func(ctx context.Context, db queries.DBTX, leases []lease) ([]int64, error) {
		for made++; made == 1 && len(leases)+s.releases.Queued(smallItems) < all; {
			time.Sleep(time.Millisecond)
		}
		return requeueExecutions(ctx, db, leases)
	})
	return func() int { return made }
}

// AnswerWaitMax is how long a large answer waits for the memory limit.
const AnswerWaitMax = answerWaitMax

// LimitMemory replaces the memory limit of large answers.
func (s *Service) LimitMemory(bytes int64) *limit.PerTenant {
	s.answers = limit.NewPerTenant(bytes)
	return s.answers
}
