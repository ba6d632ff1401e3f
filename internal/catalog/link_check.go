package catalog

import (
	"context"
	"fmt"
	"math/big"
	"slices"

	"github.com/google/uuid"

	"tranche/internal/fault"
	"tranche/internal/workflow"
	"tranche/queries"
)

// checkReferences returns the faults of the workflows that a definition runs. Each must be
// active, none may run inside itself, and a synchronous one cannot run one that waits.
func (c *Catalog) checkReferences(ctx context.Context, db queries.DBTX, w *Workflow, plan *workflow.Plan) (details []fault.Detail, err error) {
	if len(plan.References) == 0 {
		return nil, nil
	}
	checker := c.newReferenceChecker(db, w.TenantID)
	for _, reference := range plan.References {
		sub, active, err := checker.find(ctx, reference.Ref)
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
			_, message, err = checker.checkChain(ctx, sub, []string{w.Alias, reference.Ref.Alias})
		}
		if err != nil {
			return nil, err
		}
		if message != "" {
			details = append(details, fault.Detail{Field: reference.Path, Message: message})
		}
	}
	if err := checker.visit(ctx, plan, 0); err != nil {
		return nil, err
	}
	if linked := plan.Link(checker.subs, nil); linked.Waits() && w.ExecutionMode == string(workflow.ModeSync) {
		details = append(details, fault.Detail{Field: "executionMode", Message: "must be async, because a workflow that it runs waits"})
	}
	return details, nil
}

// referenceChecker checks the graph of workflows that run each other. Many paths may lead
// to the same workflow, and walking them all would take too long. So it remembers, for
// each workflow without faults below it, two facts that decide whether another path to it
// is valid: its depth of nesting, and the aliases that must not be around it. It walks the
// workflow again only to find the fault of an invalid path.
type referenceChecker struct {
	*linker
	checked map[workflow.Ref]*nesting // of workflows beneath which nothing is wrong
	bits    map[string]int            // the bit of each alias, in the sets of nestings
}

func (c *Catalog) newReferenceChecker(db queries.DBTX, tenantID uuid.UUID) *referenceChecker {
	return &referenceChecker{linker: c.newLinker(db, tenantID), checked: map[workflow.Ref]*nesting{}, bits: map[string]int{}}
}

// nesting is the remembered facts about a workflow without faults below it.
type nesting struct {
	height int     // how many workflows there are within each other, this one included
	latest big.Int // the aliases whose latest version runs within it, as a set of bits
}

// fits reports whether nothing is wrong either where a workflow runs within the given ones.
func (c *referenceChecker) fits(n *nesting, aliases []string) bool {
	return len(aliases)+n.height <= workflow.SubDepthMax+1 &&
		!slices.ContainsFunc(aliases, func(alias string) bool { return n.latest.Bit(c.bit(alias)) == 1 })
}

// bit is the bit that stands for an alias in sets.
func (c *referenceChecker) bit(alias string) int {
	n, known := c.bits[alias]
	if !known {
		n = len(c.bits)
		c.bits[alias] = n
	}
	return n
}

// checkChain checks the workflows that a plan runs. aliases are the workflows around the
// plan, its own last. It returns the fault, empty if there is none.
func (c *referenceChecker) checkChain(ctx context.Context, plan *workflow.Plan, aliases []string) (own *nesting, message string, err error) {
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
			own.latest.SetBit(&own.latest, c.bit(ref.Alias), 1)
		}
		inner, known := c.checked[ref]
		if !known || !c.fits(inner, aliases) {
			inner, message, err = c.checkReference(ctx, ref, aliases)
			if err != nil || message != "" {
				return nil, message, err
			}
			c.checked[ref] = inner
		}
		own.height = max(own.height, 1+inner.height)
		own.latest.Or(&own.latest, &inner.latest)
	}
	return own, "", nil
}

// checkReference is checkChain for the workflow that a reference leads to. Where there is
// none, nothing is wrong.
func (c *referenceChecker) checkReference(ctx context.Context, ref workflow.Ref, aliases []string) (*nesting, string, error) {
	sub, _, err := c.find(ctx, ref)
	if err != nil || sub == nil {
		return &nesting{}, "", err
	}
	return c.checkChain(ctx, sub, append(slices.Clip(aliases), ref.Alias))
}
