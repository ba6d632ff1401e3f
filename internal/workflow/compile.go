package workflow

import (
	"fmt"
	"slices"
	"time"

	"tranche/internal/expression"
	"tranche/internal/fault"
)

const (
	// faultsMax bounds the faults that are collected; answers show fewer.
	faultsMax = 100
	// warningsMax bounds the warnings, which are kept with the plan and shown all: each
	// cell of a decision table may have one.
	warningsMax = 100
)

// Time limits of a workflow (contract 3.4).
const (
	TimeoutSyncDefault  = 60 * time.Second
	TimeoutSyncMax      = 300 * time.Second
	TimeoutAsyncDefault = 24 * time.Hour
	TimeoutAsyncMax     = 30 * 24 * time.Hour
)

// Compile checks the whole graph and builds its plan. The error is a
// *fault.Error of kind Unprocessable with every fault of the definition; if a
// cycle is among them its sub-code is CircularDependency and its message names
// the cycle.
func Compile(def Definition, types map[string]TaskType) (*Plan, error) {
	c := compiler{types: types, ids: map[string]string{}}
	plan := &Plan{Graph: c.graph("", def.Tasks, def.Edges, nil), Weight: new(Weight)}
	c.checkAddresses()
	plan.schema = c.schema("inputSchema", def.InputSchema)
	plan.Mode = c.mode(def.ExecutionMode)
	plan.Timeout = c.timeout(plan.Mode, def.TimeoutSeconds)
	plan.asked, plan.seconds, plan.waits = def.ExecutionMode, def.TimeoutSeconds, c.waits
	plan.References = c.references
	plan.Effects, plan.readsNow = c.effects || c.waits, c.readsNow
	plan.Warnings, plan.Refusals = c.warnings, c.refusals
	if len(c.faults) == 0 {
		return plan, nil
	}
	// The sub-codes of details belong to malformed bodies (contract 1.9).
	for i := range c.faults {
		c.faults[i].SubCode = ""
	}
	err := fault.New(fault.Unprocessable, "the definition has faults")
	if c.cycle != "" {
		err = fault.New(fault.Unprocessable, "%s", c.cycle).WithSubCode(fault.CircularDependency)
	}
	return nil, err.WithDetails(append(c.faults, c.refusals...)...)
}

// References are the workflows that a definition runs, also if it has faults.
func References(def Definition, types map[string]TaskType) []Reference {
	c := compiler{types: types, ids: map[string]string{}}
	c.graph("", def.Tasks, def.Edges, nil)
	return c.references
}

// compiler collects the faults and the results of compiling one definition with all its
// nested graphs.
type compiler struct {
	types map[string]TaskType
	// isDraft leaves out all faults but members of a wrong type.
	isDraft  bool
	ids      map[string]string // path of the task that has the id
	faults   []fault.Detail
	warnings []fault.Detail
	refusals []fault.Detail // of publishing
	cycle    string         // message on the first cycle
	effects  bool
	waits    bool
	readsNow bool // an expression asks for the time

	references []Reference
	addresses  []address
}

// address is a use of callbackUrl in an expression.
type address struct {
	graph *graphBuilder
	reference
}

// checkAddresses checks that callbackUrl names only waits in the graph of the expression
// or in the graphs around it. The wait may come after the expression, so all graphs are
// compiled first.
func (c *compiler) checkAddresses() {
	for _, a := range c.addresses {
		var task *Task
		for graph := a.graph; ; graph = graph.outer.graph {
			if i, ok := graph.graph.Index(a.id); ok {
				task = graph.graph.Tasks[i]
			}
			if task != nil || graph.outer == nil {
				break
			}
		}
		switch {
		case task != nil && task.Wait == nil:
			c.fault(a.path, "", "uses callbackUrl with task %s, which does not wait for a signal", a.id)
		case task == nil && c.ids[a.id] != "":
			c.fault(a.path, "", "uses callbackUrl with task %s, which is in another graph", a.id)
		case task == nil:
			c.fault(a.path, "", "uses callbackUrl with a task that does not exist")
		}
	}
}

func (c *compiler) fault(path string, code fault.SubCode, format string, args ...any) {
	c.report(fault.Detail{Field: path, Message: fmt.Sprintf(format, args...), SubCode: code})
}

// report keeps a fault once, though a task type and the compiler may both read
// the member that has it.
func (c *compiler) report(detail fault.Detail) {
	wanted := !c.isDraft || detail.SubCode == fault.InvalidFieldType
	if wanted && len(c.faults) < faultsMax && !slices.Contains(c.faults, detail) {
		c.faults = append(c.faults, detail)
	}
}

// mode resolves the execution mode (contract 5.1).
func (c *compiler) mode(asked Mode) Mode {
	switch asked {
	case ModeUnset:
		if c.waits {
			return ModeAsync
		}
		return ModeSync
	case ModeSync:
		if c.waits {
			c.fault("executionMode", "", "must be async, because a task of the graph waits")
		}
	case ModeAsync:
	default:
		c.fault("executionMode", "", "must be sync or async")
	}
	return asked
}

func (c *compiler) timeout(mode Mode, seconds int) time.Duration {
	standard, most := TimeoutSyncDefault, TimeoutSyncMax
	if mode == ModeAsync {
		standard, most = TimeoutAsyncDefault, TimeoutAsyncMax
	}
	if seconds < 0 || seconds > int(most/time.Second) {
		c.fault("timeoutSeconds", "", "must be between 1 and %d if executionMode is %s", int(most/time.Second), mode)
		return most
	}
	if seconds == 0 {
		return standard
	}
	return time.Duration(seconds) * time.Second
}

// task compiles one task of a graph. It compiles the config of the type first, because the
// type sets defaults of the common members.
func (c *compiler) task(b *graphBuilder, task *Task, def TaskDefinition) {
	path := b.taskPath(task.Index)
	config := newTaskConfig(c, b, task, path+".config", def.Config)
	taskType, known := c.types[def.Type]
	switch {
	case known:
		task.Program = taskType.Compile(config.root)
	case def.Type != "":
		c.fault(path+".type", "", "is not a known task type")
	}
	config.common()
	if known {
		config.unread()
	}
	config.checkRefs()
	config.resolveEdges()
	if task.Program != nil && task.Program.Effect() {
		c.effects = true
	} else if task.Program != nil && config.root.Has("retry") {
		config.root.Warn("retry", "has no meaning for a task without effects, which gives the same result again")
	}
}

// enclosure is the task that a nested graph is part of.
type enclosure struct {
	graph *graphBuilder
	task  int
	roots expression.Scope // the roots of expressions in the nested graph
}
