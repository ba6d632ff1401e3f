package task

import "tranche/internal/workflow"

// waitMax bounds a wait; no execution lasts longer.
const waitMax = workflow.TimeoutAsyncMax

// waitForSignalType waits for a payload from outside.
type waitForSignalType struct{}

func (waitForSignalType) Compile(c *workflow.ConfigReader) workflow.Program {
	c.Wait(&workflow.Wait{
		Timeout: c.Milliseconds("timeoutMs", 0, 1, waitMax),
		Schema:  c.Schema("schema"),
	})
	return declared{}
}
