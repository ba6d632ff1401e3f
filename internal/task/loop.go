package task

import (
	"time"

	"tranche/internal/expression"
	"tranche/internal/workflow"
)

const (
	iterationsDefault = 100
	loopDelayMax      = 24 * time.Hour
)

// loopType repeats a nested graph until a condition holds.
type loopType struct{}

func (loopType) Compile(c *workflow.ConfigReader) workflow.Program {
	inner := expression.Scope{Last: true}
	c.Require("until", "tasks")
	nest := &workflow.Nest{
		Kind:          workflow.NestLoop,
		Until:         c.With(inner).Condition("until"),
		Delay:         c.Milliseconds("delayMs", 0, 0, loopDelayMax),
		IterationsMax: c.Int("maxIterations", iterationsDefault, 1, workflow.IterationsMax),
		Graph:         c.Graph(inner),
	}
	if nest.Delay > 0 {
		c.Waits()
	}
	c.Nest(nest)
	return declared{}
}
