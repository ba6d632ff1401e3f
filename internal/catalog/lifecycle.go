package catalog

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/audit"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/queries"
)

// Publish makes a draft active after compiling its graph. Anything but a draft
// is fault.Conflict; a graph with faults is fault.Unprocessable and names
// every one of them.
func (c *Catalog) Publish(ctx context.Context, tenantID, id uuid.UUID) (*Workflow, error) {
	var published *Workflow
	var plan *workflow.Plan
	err := postgres.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		current, err := c.lockTx(ctx, tx, tenantID, id)
		if err != nil {
			return err
		}
		if current.Status != Draft {
			return errStatus(Draft, "published", current.Status)
		}
		if plan, err = c.check(ctx, tx, current); err != nil {
			return err
		}
		row, err := c.queries.WorkflowPublish(ctx, tx, queries.WorkflowPublishParams{TenantID: tenantID, ID: id})
		if err != nil {
			return err
		}
		published = fromRow(row)
		return audit.RecordTx(ctx, tx, tenantID, audit.WorkflowPublish, id.String())
	})
	if err != nil {
		return nil, err
	}
	c.plans.put(published, plan)
	return published, nil
}

// check returns the plan of a workflow that can be published. Otherwise it returns
// fault.Unprocessable, which names every fault of the definition and of its sub-workflows.
func (c *Catalog) check(ctx context.Context, db queries.DBTX, w *Workflow) (*workflow.Plan, error) {
	definition, err := parse(w.Content, nil)
	if err != nil {
		return nil, err
	}
	plan, err := workflow.Compile(definition, c.types)
	if err != nil && !errors.Is(err, fault.Unprocessable) {
		return nil, err
	}
	found := plan
	if err != nil { // its details include the refusals
		found = &workflow.Plan{References: workflow.References(definition, c.types)}
	}
	details, referenceErr := c.checkReferences(ctx, db, w, found)
	details = slices.Concat(found.Refusals, details)
	switch {
	case referenceErr != nil:
		return nil, referenceErr
	case err != nil:
		return nil, fault.From(err).WithDetails(details...)
	case len(details) > 0:
		return nil, fault.New(fault.Unprocessable, "the definition has faults").WithDetails(details...)
	}
	return plan, nil
}

// compile returns the plan of a stored workflow. The types of its configs were checked
// when it was written; compiling finds all other faults.
func (c *Catalog) compile(w *Workflow) (*workflow.Plan, error) {
	definition, err := parse(w.Content, nil)
	if err != nil {
		return nil, err
	}
	return workflow.Compile(definition, c.types)
}

// Validation is the result of a trial publication.
type Validation struct {
	// Err is the error that Publish would return for the definition; nil if it compiles.
	Err *fault.Error
	// Warnings do not forbid publishing.
	Warnings []fault.Detail
}

// Validate compiles a workflow of any status as Publish would, and changes
// nothing.
func (c *Catalog) Validate(ctx context.Context, tenantID, id uuid.UUID) (Validation, error) {
	w, err := c.Get(ctx, tenantID, id)
	if err != nil {
		return Validation{}, err
	}
	plan, err := c.check(ctx, c.pool, w)
	switch {
	case errors.Is(err, fault.Unprocessable):
		return Validation{Err: fault.From(err)}, nil
	case err != nil:
		return Validation{}, err
	}
	return Validation{Warnings: plan.Warnings}, nil
}

// CreateDraft makes the next version of an active workflow's alias as a draft
// with the same content. Anything but an active workflow is fault.Conflict,
// and so is an alias that has a draft already.
func (c *Catalog) CreateDraft(ctx context.Context, tenantID, id uuid.UUID) (*Workflow, error) {
	var draft *Workflow
	err := postgres.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		source, err := c.lockTx(ctx, tx, tenantID, id)
		if err != nil {
			return err
		}
		if source.Status != Active {
			return errStatus(Active, "the source of a draft", source.Status)
		}
		// Advancing holds the alias, so no other draft can appear meanwhile.
		version, err := c.queries.WorkflowAliasAdvance(ctx, tx, queries.WorkflowAliasAdvanceParams{TenantID: tenantID, Alias: source.Alias})
		if err != nil {
			return err
		}
		use, err := c.queries.WorkflowAliasGetVersions(ctx, tx, queries.WorkflowAliasGetVersionsParams{TenantID: tenantID, Alias: source.Alias})
		if err != nil {
			return err
		}
		if use.HasDraft {
			return fault.New(fault.Conflict, "the alias has a draft already; an alias has at most one")
		}
		draft, err = c.insertTx(ctx, tx, tenantID, source.Alias, int(version), source.Version, source.Content)
		return err
	})
	if err != nil {
		return nil, err
	}
	return draft, nil
}

// Archive retires an active workflow. It cannot be executed any more; its running
// executions continue. For a workflow that is not active it returns fault.Conflict.
func (c *Catalog) Archive(ctx context.Context, tenantID, id uuid.UUID) (*Workflow, error) {
	var archived *Workflow
	err := postgres.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		current, err := c.lockTx(ctx, tx, tenantID, id)
		if err != nil {
			return err
		}
		if current.Status != Active {
			return errStatus(Active, "archived", current.Status)
		}
		row, err := c.queries.WorkflowArchive(ctx, tx, queries.WorkflowArchiveParams{TenantID: tenantID, ID: id})
		if err != nil {
			return err
		}
		archived = fromRow(row)
		return audit.RecordTx(ctx, tx, tenantID, audit.WorkflowArchive, id.String())
	})
	if err != nil {
		return nil, err
	}
	c.Forget(id)
	return archived, nil
}

// Delete removes a draft, or an archived workflow that no execution and no
// batch refers to; others are fault.Conflict.
func (c *Catalog) Delete(ctx context.Context, tenantID, id uuid.UUID) error {
	err := postgres.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		current, err := c.lockTx(ctx, tx, tenantID, id)
		if err != nil {
			return err
		}
		if err := c.deletableTx(ctx, tx, current); err != nil {
			return err
		}
		if err := c.queries.WorkflowDelete(ctx, tx, queries.WorkflowDeleteParams{TenantID: tenantID, ID: id}); err != nil {
			return err
		}
		return audit.RecordTx(ctx, tx, tenantID, audit.WorkflowDelete, id.String())
	})
	if err != nil {
		return err
	}
	c.Forget(id)
	return nil
}

func (c *Catalog) deletableTx(ctx context.Context, tx pgx.Tx, w *Workflow) error {
	switch w.Status {
	case Draft:
		return nil
	case Active:
		return fault.New(fault.Conflict, "an active workflow must be archived before it can be deleted").
			WithSubCode(fault.InvalidWorkflowStatus)
	default:
		referenced, err := c.queries.WorkflowIsReferenced(ctx, tx, queries.WorkflowIsReferencedParams{TenantID: w.TenantID, WorkflowID: w.ID})
		if err != nil {
			return err
		}
		if referenced {
			return fault.New(fault.Conflict, "executions refer to this archived workflow; it is kept with them")
		}
		return nil
	}
}
