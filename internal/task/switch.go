package task

import (
	"context"
	"fmt"

	"tranche/internal/expression"
	"tranche/internal/workflow"
)

// switchType chooses which of its edges are taken. Each of them is named by a
// case or by default.
type switchType struct{}

const (
	switchFirst = "first"
	switchAll   = "all"
)

// switchTask is a compiled switch.
type switchTask struct {
	cases     []switchCase
	otherwise string // empty: no edge
	all       bool
}

type switchCase struct {
	when   *expression.Expression
	target string
}

func (switchType) Compile(c *workflow.ConfigReader) workflow.Program {
	c.Require("cases")
	s := &switchTask{}
	for _, item := range c.Objects("cases") {
		item.Require("when", "goto")
		s.cases = append(s.cases, switchCase{when: item.Condition("when"), target: item.Goto("goto")})
	}
	s.otherwise = c.Otherwise("default")
	s.all = c.Choice("mode", switchFirst, switchAll) == switchAll
	c.OnlyNamedEdges()
	return s
}

// Effect is false: a switch only decides.
func (*switchTask) Effect() bool { return false }

// Run takes the edge of the first case that holds, or of each under mode all;
// with none, default's. The output names the tasks chosen.
func (s *switchTask) Run(ctx context.Context, call *workflow.Call) (workflow.Result, error) {
	chosen := []string{}
	for i, c := range s.cases {
		if err := ctx.Err(); err != nil {
			return workflow.Result{}, err
		}
		holds, err := c.when.EvalBool(call.Env)
		if err != nil {
			return workflow.Result{}, failureAt(workflow.CodeExpression, fmt.Sprintf("cases[%d].when", i), err)
		}
		if !holds {
			continue
		}
		chosen = append(chosen, c.target)
		if !s.all {
			break
		}
	}
	if len(chosen) == 0 && s.otherwise != "" {
		chosen = append(chosen, s.otherwise)
	}
	targets := make([]any, len(chosen))
	for i, target := range chosen {
		targets[i] = target
	}
	return workflow.Result{Output: map[string]any{"targets": targets}, Targets: chosen}, nil
}
