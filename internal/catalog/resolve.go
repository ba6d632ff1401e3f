package catalog

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/fault"
	"tranche/internal/workflow"
	"tranche/queries"
)

// Resolve returns the active workflow of an alias and a version, with its plan linked to
// those of its sub-workflows. It returns fault.NotFound for an unknown name,
// fault.Conflict for a draft or an archived version.
//
// A version that was resolved before comes from memory. Another process may have archived
// it meanwhile. So the statement that records an execution checks the status again; if it
// refuses, the caller calls Forget and Resolve again. For workflow.Latest, Resolve always
// asks the database.
func (c *Catalog) Resolve(ctx context.Context, tenantID uuid.UUID, alias, version string) (*Workflow, *workflow.Plan, error) {
	number, err := c.versionNumber(ctx, tenantID, alias, version)
	if err != nil {
		return nil, nil, err
	}
	if w, plan, ok := c.plans.byName(planName{tenantID, alias, number}); ok && w.Status == Active {
		return c.linked(ctx, w, plan)
	}
	row, err := c.queries.WorkflowGetByVersion(ctx, c.pool, queries.WorkflowGetByVersionParams{
		TenantID: tenantID, Alias: alias, Version: int32(number),
	})
	if err != nil {
		return nil, nil, readError(err, "resolve workflow %s/%d", alias, number)
	}
	w := fromRow(row)
	if w.Status != Active {
		return nil, nil, errStatus(Active, "executed", w.Status)
	}
	plan, err := c.keepPlan(w)
	if err != nil {
		return nil, nil, err
	}
	return c.linked(ctx, w, plan)
}

func (c *Catalog) linked(ctx context.Context, w *Workflow, plan *workflow.Plan) (*Workflow, *workflow.Plan, error) {
	plan, err := c.Link(ctx, w.TenantID, plan, nil)
	if err != nil {
		return nil, nil, err
	}
	return w, plan, nil
}

func (c *Catalog) versionNumber(ctx context.Context, tenantID uuid.UUID, alias, version string) (int, error) {
	if !aliasPattern.MatchString(alias) {
		return 0, errUnknown()
	}
	if version != workflow.Latest {
		number, ok := ParseVersion(version)
		if !ok {
			return 0, errUnknown()
		}
		return number, nil
	}
	number, err := c.queries.WorkflowLatestActive(ctx, c.pool, queries.WorkflowLatestActiveParams{TenantID: tenantID, Alias: alias})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, fault.New(fault.NotFound, "the alias has no active version")
	}
	if err != nil {
		return 0, readError(err, "find the latest version of %s", alias)
	}
	return int(number), nil
}

// Plan returns a workflow that was ever published, archived or not, with its plan. Resumed
// executions use it. It returns fault.NotFound for an unknown id, fault.Conflict for a
// draft.
func (c *Catalog) Plan(ctx context.Context, tenantID, id uuid.UUID) (*Workflow, *workflow.Plan, error) {
	if w, plan, ok := c.plans.byID(id); ok && w.TenantID == tenantID {
		return c.linked(ctx, w, plan)
	}
	w, err := c.Get(ctx, tenantID, id)
	if err != nil {
		return nil, nil, err
	}
	if w.Status == Draft {
		return nil, nil, errStatus(Active, "executed", w.Status)
	}
	plan, err := c.keepPlan(w)
	if err != nil {
		return nil, nil, err
	}
	return c.linked(ctx, w, plan)
}

// keepPlan compiles a published workflow, whose definition never changes, and caches the
// plan.
func (c *Catalog) keepPlan(w *Workflow) (*workflow.Plan, error) {
	plan, err := c.compile(w)
	if err != nil {
		// It compiled when it was published, so the fault is the service's.
		return nil, fault.Wrap(err, fault.Internal, "the published workflow cannot be compiled")
	}
	c.plans.put(w, plan)
	return plan, nil
}

// Forget removes a workflow from memory, because its status has changed.
func (c *Catalog) Forget(id uuid.UUID) { c.plans.remove(id) }
