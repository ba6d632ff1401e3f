package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/fault"
	"tranche/internal/workflow"
	"tranche/queries"
)

// Link returns a plan together with those of the workflows that it runs. What
// pins say of an alias is its latest version; without, it is the highest active
// one now. A workflow that is not there is left out: the engine fails the task
// that needs it.
func (c *Catalog) Link(ctx context.Context, tenantID uuid.UUID, plan *workflow.Plan, pins map[string]int) (*workflow.Plan, error) {
	if len(plan.References) == 0 {
		return plan, nil
	}
	l := linker{catalog: c, db: c.pool, tenantID: tenantID, pins: map[string]int{}, subs: map[workflow.Ref]*workflow.Plan{}}
	maps.Copy(l.pins, pins)
	if err := l.visit(ctx, plan, 0); err != nil {
		return nil, err
	}
	return plan.Link(l.subs, l.pins), nil
}

// linker collects the plans that a plan refers to, directly and through others.
type linker struct {
	catalog  *Catalog
	db       queries.DBTX
	tenantID uuid.UUID
	pins     map[string]int
	subs     map[workflow.Ref]*workflow.Plan
	// Of checkChain: those beneath which nothing is wrong, and the numbers of aliases.
	sound   map[workflow.Ref]*nesting
	numbers map[string]int
}

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

// find returns the plan that a reference leads to, and whether it is active;
// nil where there is none.
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

// checkReferences finds what is wrong with the workflows that a definition
// runs: each must be active, none may run inside itself, and a synchronous one
// cannot run one that waits.
func (c *Catalog) checkReferences(ctx context.Context, db queries.DBTX, w *Workflow, plan *workflow.Plan) (details []fault.Detail, err error) {
	if len(plan.References) == 0 {
		return nil, nil
	}
	l := linker{
		catalog: c, db: db, tenantID: w.TenantID, pins: map[string]int{}, subs: map[workflow.Ref]*workflow.Plan{},
		numbers: map[string]int{}, sound: map[workflow.Ref]*nesting{},
	}
	for _, reference := range plan.References {
		sub, active, err := l.find(ctx, reference.Ref)
		if err != nil {
			return nil, err
		}
		message := ""
		switch {
		case reference.Ref.Alias == w.Alias && reference.Ref.Version == workflow.Latest:
			message = "would run this workflow inside itself"
		case sub == nil || !active:
			message = "names no active workflow"
		default:
			_, message, err = l.checkChain(ctx, sub, []string{w.Alias, reference.Ref.Alias})
		}
		if err != nil {
			return nil, err
		}
		if message != "" {
			details = append(details, fault.Detail{Field: reference.Path, Message: message})
		}
	}
	if err := l.visit(ctx, plan, 0); err != nil {
		return nil, err
	}
	if linked := plan.Link(l.subs, nil); linked.Waits() && w.ExecutionMode == string(workflow.ModeSync) {
		details = append(details, fault.Detail{Field: "executionMode", Message: "must be async, because a workflow that it runs waits"})
	}
	return details, nil
}

// nesting is what those that run a workflow have to know of one beneath which
// nothing is wrong.
type nesting struct {
	height int     // of the workflows within each other, this one included
	latest big.Int // the aliases whose latest version runs within it, by their number
}

// fits reports whether nothing is wrong within the given ones either.
func (l *linker) fits(n *nesting, aliases []string) bool {
	return len(aliases)+n.height <= workflow.SubDepthMax+1 &&
		!slices.ContainsFunc(aliases, func(alias string) bool { return n.latest.Bit(l.number(alias)) == 1 })
}

// number is the bit that stands for an alias.
func (l *linker) number(alias string) int {
	n, known := l.numbers[alias]
	if !known {
		n = len(l.numbers)
		l.numbers[alias] = n
	}
	return n
}

// checkChain says what is wrong with the workflows that a plan runs within the
// given ones, of which its own is the last; empty for nothing. Many ways may lead
// to a workflow: where nothing is wrong beneath it, it is walked through once, and
// again only on the way to what is wrong.
func (l *linker) checkChain(ctx context.Context, plan *workflow.Plan, aliases []string) (own *nesting, message string, err error) {
	if len(aliases) > workflow.SubDepthMax+1 {
		return nil, fmt.Sprintf("would nest workflows more than %d deep", workflow.SubDepthMax), nil
	}
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	own = &nesting{height: 1}
	for _, reference := range plan.References {
		ref := reference.Ref
		if ref.Version == workflow.Latest {
			if slices.Contains(aliases, ref.Alias) {
				return nil, "would run workflow " + ref.Alias + " inside itself", nil
			}
			own.latest.SetBit(&own.latest, l.number(ref.Alias), 1)
		}
		inner, known := l.sound[ref]
		if !known || !l.fits(inner, aliases) {
			inner, message, err = l.checkReference(ctx, ref, aliases)
			if err != nil || message != "" {
				return nil, message, err
			}
			l.sound[ref] = inner
		}
		own.height = max(own.height, 1+inner.height)
		own.latest.Or(&own.latest, &inner.latest)
	}
	return own, "", nil
}

// checkReference is checkChain of the workflow that a reference leads to. Where
// there is none, nothing is wrong.
func (l *linker) checkReference(ctx context.Context, ref workflow.Ref, aliases []string) (*nesting, string, error) {
	sub, _, err := l.find(ctx, ref)
	if err != nil || sub == nil {
		return &nesting{}, "", err
	}
	return l.checkChain(ctx, sub, append(slices.Clip(aliases), ref.Alias))
}
