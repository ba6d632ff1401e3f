package queries

import "context"

// Statement is one that ExecutionList may ask.
type Statement = statement

// Settings is settings.
func (s *statement) Settings() (sql string, args []any) { return s.settings() }

// Statements are what ExecutionList may ask: every way of counting, and the page
// by reading in the list's order.
func (p *ExecutionListParams) Statements(ctx context.Context, db ListDB) ([]Statement, error) {
	ways, err := p.ways(ctx, db)
	if err != nil {
		return nil, err
	}
	statements := make([]Statement, 0, len(ways)+1)
	for i := range ways {
		statements = append(statements, p.along(&ways[i]))
	}
	return append(statements, p.page()), nil
}
