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

// Window says which part of a list to read, newest first.
type Window struct {
	// Before is the id that the part comes after; uuid.Nil begins at the newest.
	Before uuid.UUID
	Offset int
	Limit  int
}

// List returns the workflows of the tenant within a window, without their
// InputSchema, Tasks and Edges, and how many match in all, counted up to countMax.
func (c *Catalog) List(ctx context.Context, tenantID uuid.UUID, filter Filter, window Window, countMax int) ([]*Workflow, int, error) {
	status, search := optional(string(filter.Status)), optional(filter.Search)
	list := queries.WorkflowListParams{
		TenantID: tenantID, Status: status, Search: search,
		RowLimit: int32(window.Limit), RowOffset: int32(window.Offset),
	}
	if window.Before != uuid.Nil {
		list.Before = &window.Before
	}
	rows, err := c.queries.WorkflowList(ctx, c.pool, list)
	if err != nil {
		return nil, 0, readError(err, "list workflows")
	}
	total, err := c.queries.WorkflowCount(ctx, c.pool, queries.WorkflowCountParams{
		TenantID: tenantID, Status: status, Search: search, CountMax: int64(countMax),
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
