package task

import "tranche/internal/workflow"

// subWorkflowType runs a published workflow within the execution.
type subWorkflowType struct{}

func (subWorkflowType) Compile(c *workflow.ConfigReader) workflow.Program {
	c.Nest(&workflow.Nest{Kind: workflow.NestOnce, Ref: c.Workflow(), Input: c.Tree("input")})
	return declared{}
}
