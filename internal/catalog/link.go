package catalog

import (
	"context"
	"errors"
	"maps"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/workflow"
	"tranche/queries"
)

// Link returns a plan together with those of the workflows that it runs, directly and
// through others. The latest version of an alias is the one that pins has of it, else the
// highest active one now. A workflow that is not there is left out: the engine fails the
// task that needs it.
func (c *Catalog) Link(ctx context.Context, tenantID uuid.UUID, plan *workflow.Plan, pins map[string]int) (*workflow.Plan, error) {
	if len(plan.References) == 0 {
		return plan, nil
	}
	l := c.newLinker(c.pool, tenantID)
	maps.Copy(l.pins, pins)
	if err := l.visit(ctx, plan, 0); err != nil {
		return nil, err
	}
	return plan.Link(l.subs, l.pins), nil
}

// linker finds the plans that a plan refers to, directly and through others.
type linker struct {
	catalog  *Catalog
	db       queries.DBTX
	tenantID uuid.UUID
	pins     map[string]int // the latest versions, by alias: as given, and as found
	subs     map[workflow.Ref]*workflow.Plan
}

func (c *Catalog) newLinker(db queries.DBTX, tenantID uuid.UUID) *linker {
	return &linker{catalog: c, db: db, tenantID: tenantID, pins: map[string]int{}, subs: map[workflow.Ref]*workflow.Plan{}}
}

// visit adds the plans that a plan refers to, which is nested depth deep.
func (l *linker) visit(ctx context.Context, plan *workflow.Plan, depth int) error {
	if depth > workflow.SubDepthMax {
		return nil
	}
	for _, reference := range plan.References {
		if _, known := l.subs[reference.Ref]; known {
			continue
		}
		sub, _, err := l.find(ctx, reference.Ref)
		if err != nil {
			return err
		}
		if sub == nil {
			continue
		}
		l.subs[reference.Ref] = sub
		if err := l.visit(ctx, sub, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// find returns the plan that a reference leads to, and whether it is active; nil where
// there is none or it is a draft.
func (l *linker) find(ctx context.Context, ref workflow.Ref) (plan *workflow.Plan, active bool, err error) {
	if !aliasPattern.MatchString(ref.Alias) {
		return nil, false, nil
	}
	version, ok := ParseVersion(ref.Version)
	if ref.Version == workflow.Latest {
		if version, ok = l.pins[ref.Alias]; !ok {
			version, ok, err = l.latest(ctx, ref.Alias)
		}
	}
	if err != nil || !ok {
		return nil, false, err
	}
	if w, plan, ok := l.catalog.plans.byName(planName{l.tenantID, ref.Alias, version}); ok {
		return plan, w.Status == Active, nil
	}
	row, err := l.catalog.queries.WorkflowGetByVersion(ctx, l.db, queries.WorkflowGetByVersionParams{
		TenantID: l.tenantID, Alias: ref.Alias, Version: int32(version),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, readError(err, "find workflow %s/%d", ref.Alias, version)
	}
	w := fromRow(row)
	if w.Status == Draft {
		return nil, false, nil
	}
	plan, err = l.catalog.keepPlan(w)
	return plan, w.Status == Active, err
}

// latest finds the highest active version of an alias and pins it.
func (l *linker) latest(ctx context.Context, alias string) (version int, ok bool, err error) {
	number, err := l.catalog.queries.WorkflowLatestActive(ctx, l.db, queries.WorkflowLatestActiveParams{TenantID: l.tenantID, Alias: alias})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, readError(err, "find the latest version of %s", alias)
	}
	l.pins[alias] = int(number)
	return int(number), true, nil
}
