package task

import (
	"context"
	"time"

	"tranche/internal/exactjson"
	"tranche/internal/expression"
	"tranche/internal/workflow"
)

// codeDelay is the code of a delay's failure if until returns no time.
const codeDelay = "DELAY_ERROR"

// delayType waits for a time to pass.
type delayType struct{}

// delay is a compiled delay; until is nil if duration says how long.
type delay struct {
	duration time.Duration
	until    *expression.Expression
}

func (delayType) Compile(c *workflow.ConfigReader) workflow.Program {
	d := &delay{
		duration: c.Milliseconds("forMs", 0, 0, waitMax),
		until:    c.Expression("until"),
	}
	switch {
	case !c.Has("forMs") && !c.Has("until"):
		c.Require("forMs")
	case c.Has("forMs") && c.Has("until"):
		c.Fault("until", "must not be given together with forMs; keep one of them")
	}
	c.Waits()
	return d
}

// Effect is false: a delay only asks to be run again when its time has come.
func (*delay) Effect() bool { return false }

// Run ends when the time is reached. The time depends only on values that were recorded
// when the task began, so it is the same after a crash.
func (d *delay) Run(_ context.Context, call *workflow.Call) (workflow.Result, error) {
	until := call.Env.Now.Add(d.duration)
	if d.until != nil {
		value, err := d.until.Eval(call.Env)
		if err != nil {
			return workflow.Result{}, failureAt(codeDelay, "until", err)
		}
		var ok bool
		if until, ok = expression.ToTime(value); !ok {
			return workflow.Result{}, failure(codeDelay, "until: must give a time such as 2026-01-31T08:00:00Z")
		}
	}
	until = until.UTC().Truncate(time.Millisecond)
	if call.At.Before(until) {
		return workflow.Result{WaitUntil: until}, nil
	}
	return workflow.Result{Output: map[string]any{"until": exactjson.FormatTime(until)}}, nil
}
