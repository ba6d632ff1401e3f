package task

import (
	"context"
	"errors"

	"tranche/internal/workflow"
)

// declared is the program of a task that the engine runs itself: nested graphs, or the
// wait for a signal.
type declared struct{}

var errDeclared = errors.New("the engine carries this task out itself")

// Effect is false: the nested tasks have effects of their own.
func (declared) Effect() bool { return false }

// Run is never called.
func (declared) Run(context.Context, *workflow.Call) (workflow.Result, error) {
	return workflow.Result{}, errDeclared
}
