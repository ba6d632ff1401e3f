package task

import (
	"time"

	"tranche/internal/workflow"
)

// waitMax bounds a wait; no execution lasts longer.
const waitMax = workflow.TimeoutAsyncMax

// waitForSignalType waits for a payload from outside.
type waitForSignalType struct{}

func (waitForSignalType) Compile(c *workflow.ConfigReader) workflow.Program {
	c.Wait(&workflow.Wait{
		Timeout: time.Duration(c.Int("timeoutMs", 0, 1, int(waitMax.Milliseconds()))) * time.Millisecond,
		Schema:  c.Schema("schema"),
	})
	return declared{}
}
