package catalog

import (
	"context"

	"github.com/google/uuid"

	"tranche/queries"
)

// Filter narrows a list; empty members do not.
type Filter struct {
	Status Status
	// Search is matched without regard to case anywhere in name or alias.
	Search string
}

// List returns the workflows of the tenant within a window, newest first and without
// their InputSchema, Tasks and Edges, and how many match in all.
func (c *Catalog) List(ctx context.Context, tenantID uuid.UUID, filter Filter, window queries.Window) ([]*Workflow, int, error) {
	status, search := queries.Optional(string(filter.Status)), queries.Optional(filter.Search)
	rows, err := c.queries.WorkflowList(ctx, queries.CustomPlan(c.pool), queries.WorkflowListParams{
		TenantID: tenantID, Status: status, Search: search,
		Before: window.After, RowLimit: int32(window.Limit), RowOffset: int32(window.Offset),
	})
	if err != nil {
		return nil, 0, readError(err, "list workflows")
	}
	total, err := c.queries.WorkflowCount(ctx, queries.CustomPlan(c.pool), queries.WorkflowCountParams{
		TenantID: tenantID, Status: status, Search: search, CountMax: int64(window.CountMax),
	})
	if err != nil {
		return nil, 0, readError(err, "count workflows")
	}
	found := make([]*Workflow, len(rows))
	for i, row := range rows {
		found[i] = fromListRow(row)
	}
	return found, int(total), nil
}
