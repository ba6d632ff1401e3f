package task

import (
	"tranche/internal/expression"
	"tranche/internal/workflow"
)

// concurrencyDefault is how many items a for-each works on at a time.
const concurrencyDefault = 10

// forEachType runs a nested graph, or a published workflow, once for each item
// of a list.
type forEachType struct{}

func (forEachType) Compile(c *workflow.ConfigReader) workflow.Program {
	nest := &workflow.Nest{Kind: workflow.NestEach}
	c.Require("items")
	nest.Items = c.Expression("items")
	nest.Concurrency = c.Int("concurrency", concurrencyDefault, 1, workflow.ConcurrencyMax)
	nest.Continue = c.Choice("onItemError", "fail", "continue") == "continue"
	inner := expression.Scope{Item: true}
	if !c.Has("workflow") {
		nest.Graph = c.Graph(inner)
	} else if c.Has("tasks") || c.Has("edges") {
		c.Value("tasks")
		c.Value("edges")
		c.Fault("workflow", "must not be given together with tasks; keep one of them")
	}
	if reference := c.Object("workflow"); reference != nil {
		nest.Ref = reference.Workflow()
		nest.Input = reference.With(inner).Tree("input")
	}
	c.Nest(nest)
	return declared{}
}
