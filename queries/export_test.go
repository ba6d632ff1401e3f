package queries

import "context"

// Statement is a statement of ExecutionList.
type Statement = statement

// Settings exports settings.
func (s *statement) Settings() (sql string, args []any) { return s.settings() }

// Statements returns the statements of ExecutionList: one count for each query plan, and the
// page in the list's order.
func (p *ExecutionListParams) Statements(ctx context.Context, db ListDB) ([]Statement, error) {
	plans, err := p.plans(ctx, db)
	if err != nil {
		return nil, err
	}
	statements := make([]Statement, 0, len(plans)+1)
	for i := range plans {
		statements = append(statements, p.count(&plans[i]))
	}
	return append(statements, p.page()), nil
}
