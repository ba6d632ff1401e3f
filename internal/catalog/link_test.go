package catalog

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/workflow"
)

// library is a checker of workflows that are kept in memory, so that it asks no
// database; the highest version of an alias is its latest.
func library(plans map[workflow.Ref]*workflow.Plan) *referenceChecker {
	c := &Catalog{plans: newPlanCache(planBytesMax)}
	l := c.newReferenceChecker(nil, uuid.New())
	for ref, plan := range plans {
		version, _ := ParseVersion(ref.Version)
		c.plans.put(&Workflow{ID: uuid.New(), TenantID: l.tenantID, Alias: ref.Alias, Version: version, Status: Active}, plan)
		l.pins[ref.Alias] = max(l.pins[ref.Alias], version)
	}
	return l
}

// walk is checkChain as its messages are defined: along every way.
func (l *referenceChecker) walk(t require.TestingT, plan *workflow.Plan, aliases []string) string {
	if len(aliases) > workflow.SubDepthMax+1 {
		return "would nest workflows more than 8 deep"
	}
	for _, reference := range plan.References {
		if reference.Ref.Version == workflow.Latest && slices.Contains(aliases, reference.Ref.Alias) {
			return "would run workflow " + reference.Ref.Alias + " inside itself"
		}
		sub, _, err := l.find(context.Background(), reference.Ref)
		require.NoError(t, err)
		if sub == nil {
			continue
		}
		if message := l.walk(t, sub, append(slices.Clip(aliases), reference.Ref.Alias)); message != "" {
			return message
		}
	}
	return ""
}

// However workflows run each other, what is found is what walking along every way
// finds.
func TestReferenceCheckAgreesWithFullWalk(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		alias := rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("w%d", rapid.IntRange(0, 10).Draw(t, "alias")) })
		plans := map[workflow.Ref]*workflow.Plan{}
		var refs []workflow.Ref
		for n := range rapid.IntRange(1, 14).Draw(t, "workflows") {
			plan := &workflow.Plan{}
			for range min(n, rapid.IntRange(0, 3).Draw(t, "references")) {
				// Mostly the newest, so that chains become long; also ones that are not there.
				ref := refs[max(0, n-1-rapid.IntRange(0, 4).Draw(t, "back"))]
				switch rapid.IntRange(0, 9).Draw(t, "kind") {
				case 0:
					ref.Alias = "-"
				case 1, 2:
					ref = workflow.Ref{Alias: refs[rapid.IntRange(0, n-1).Draw(t, "any")].Alias, Version: workflow.Latest}
				case 3, 4, 5:
					ref.Version = workflow.Latest
				}
				plan.References = append(plan.References, workflow.Reference{Ref: ref})
			}
			ref := workflow.Ref{Alias: alias.Draw(t, "own"), Version: fmt.Sprintf("v%d", n+1)}
			plans[ref], refs = plan, append(refs, ref)
		}
		l, root := library(plans), alias.Draw(t, "root")
		for _, ref := range refs { // one after the other, as the references of a definition
			aliases := []string{root, ref.Alias}
			_, message, err := l.checkChain(context.Background(), plans[ref], aliases)
			require.NoError(t, err)
			require.Equal(t, l.walk(t, plans[ref], aliases), message, "%v in %s", ref, root)
		}
	})
}

// All plans may come from memory, where nothing else looks at the context.
func TestReferenceCheckStopsWithContext(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := library(nil).checkChain(over, &workflow.Plan{}, []string{"outer", "inner"})
	require.ErrorIs(t, err, context.Canceled)
}
