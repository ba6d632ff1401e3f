package execution

import "context"

// AroundInserts has what happens around the statements that record executions
// decided by the caller, who makes them, or does not, or later.
func (s *Service) AroundInserts(around func(insert func() error) error) {
	write := s.inserts.write
	s.inserts.write = func(ctx context.Context, executions []*newExecution) (inserted []bool, err error) {
		err = around(func() error {
			inserted, err = write(context.WithoutCancel(ctx), executions)
			return err
		})
		return inserted, err
	}
}
