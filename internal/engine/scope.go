package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tranche/internal/expression"
	"tranche/internal/fault"
	"tranche/internal/workflow"
)

// codeInput is the code of a sub-workflow's failure if its input does not match its
// schema.
const codeInput = "INPUT_SCHEMA_MISMATCH"

// scope holds the values that the expressions of one running graph see. The graph is the
// execution's own, or one run of a nested graph.
type scope struct {
	outer  *scope
	graph  *workflow.Graph
	tasks  []TaskState
	prefix string // of the paths of its tasks: each[3].
	env    expression.Env
	unread []int // tasks that expressions read and that env does not have yet

	items map[int][]any // of the tasks that are a for-each
	inner map[nestedRun]*scope
}

// unread are the tasks of a graph that expressions read.
func unread(graph *workflow.Graph) []int {
	var read []int
	for i, task := range graph.Tasks {
		if task.Read {
			read = append(read, i)
		}
	}
	return read
}

// readTasks adds the results of tasks that have been decided since the last call.
func (s *scope) readTasks() {
	waiting := s.unread[:0]
	for _, i := range s.unread {
		task, state := s.graph.Tasks[i], &s.tasks[i]
		if !state.decided(task) {
			waiting = append(waiting, i)
			continue
		}
		seen := expression.Task{Output: state.Output, Status: string(state.Status)}
		if state.Error != nil {
			seen.Error = state.Error.Value()
		}
		if s.env.Tasks == nil {
			s.env.Tasks = make(map[string]expression.Task, len(s.unread))
		}
		s.env.Tasks[task.ID] = seen
	}
	s.unread = waiting
}

// itemsOf returns the items of a for-each. They depend only on stored values, so they are
// evaluated again after a crash instead of stored.
func (s *scope) itemsOf(i int) ([]any, error) {
	if items, known := s.items[i]; known {
		return items, nil
	}
	s.readTasks()
	env, task := s.env, s.graph.Tasks[i]
	env.Now, env.Path = s.tasks[i].StartedAt, s.prefix+task.ID
	items, err := task.Nest.Items.EvalList(&env)
	if err != nil {
		return nil, atMember("items", err)
	}
	if len(items) > workflow.ItemsMax {
		return nil, &workflow.TaskError{Code: codeRunLimit, Message: fmt.Sprintf("items must have at most %d items; it has %d", workflow.ItemsMax, len(items))}
	}
	if s.items == nil {
		s.items = map[int][]any{}
	}
	s.items[i] = items
	return items, nil
}

// atMember adds the name of the config's member to the error of its expression.
func atMember(member string, err error) error {
	failed, ok := errors.AsType[*expression.Error](err)
	if !ok {
		return err
	}
	at := *failed
	at.Path = member
	return &at
}

// testLast evaluates the until of a loop on the result of its last iteration.
func (s *scope) testLast(i int) (bool, error) {
	env, task, nested := s.env, s.graph.Tasks[i], s.tasks[i].Nested
	env.Last, env.Index = nested.Last, nested.Next-1
	env.Path = s.prefix + task.ID
	if frame := nested.frame(env.Index); frame != nil {
		env.Now = frame.StartedAt
	}
	return task.Nest.Until.EvalBool(&env)
}

// graph is the graph at a place.
func (d *drive) graph(in place) *workflow.Graph {
	graph := d.run.Plan.Graph
	for _, run := range in {
		graph = d.run.Plan.NestedGraph(graph.Tasks[run.Task].Nest)
	}
	return graph
}

// scope returns the scope of an open run. The error says why the run cannot continue.
func (d *drive) scope(ctx context.Context, in place) (*scope, *workflow.TaskError) {
	at := &d.root
	for _, run := range in {
		inner, known := at.inner[run]
		if !known {
			var err *workflow.TaskError
			if inner, err = d.open(ctx, at, run); err != nil {
				return nil, err
			}
		}
		at = inner
	}
	return at, nil
}

// open makes the scope of a run.
func (d *drive) open(ctx context.Context, outer *scope, run nestedRun) (*scope, *workflow.TaskError) {
	task, nested := outer.graph.Tasks[run.Task], outer.tasks[run.Task].Nested
	frame, nest := nested.frame(run.Index), task.Nest
	s := &scope{
		outer: outer, graph: d.run.Plan.NestedGraph(nest), tasks: frame.Tasks,
		prefix: outer.prefix + runName(task, run.Index), env: outer.env,
	}
	s.unread = unread(s.graph)
	outer.readTasks()
	s.env.Tasks = maps.Clone(outer.env.Tasks)
	switch nest.Kind {
	case workflow.NestEach:
		items, err := outer.itemsOf(run.Task)
		if err != nil {
			return nil, d.taskError(ctx, task, err)
		}
		s.env.Item, s.env.Index = items[run.Index], run.Index
	case workflow.NestLoop:
		s.env.Last, s.env.Index = nested.Last, run.Index
	case workflow.NestOnce:
	}
	d.addressed(s)
	if nest.Graph == nil {
		if err := d.isolate(ctx, s, task, frame); err != nil {
			return nil, err
		}
	}
	if outer.inner == nil {
		outer.inner = map[nestedRun]*scope{}
	}
	maps.DeleteFunc(outer.inner, func(other nestedRun, _ *scope) bool {
		return outer.tasks[other.Task].Nested.open(other.Index) == nil
	})
	outer.inner[run] = s
	return s, nil
}

// isolate makes a scope that of a workflow of its own, which sees its input
// and nothing around it.
func (d *drive) isolate(ctx context.Context, s *scope, task *workflow.Task, frame *Frame) *workflow.TaskError {
	input := s.env.Item
	if task.Nest.Kind == workflow.NestOnce {
		input = map[string]any{}
	}
	if tree := task.Nest.Input; tree != nil {
		env := s.env
		env.Now, env.Path = frame.StartedAt, strings.TrimSuffix(s.prefix, ".")
		var err error
		if input, err = tree.Eval(&env); err != nil {
			return d.taskError(ctx, task, err)
		}
	}
	object, isObject := input.(map[string]any)
	if !isObject {
		return &workflow.TaskError{Code: codeInput, Message: "the input of workflow " + task.Nest.Ref.Alias + " must be an object"}
	}
	filled, faults := d.run.Plan.Subs[task.Nest.Ref].CheckInput(object)
	if len(faults) > 0 {
		return &workflow.TaskError{Code: codeInput, Message: "the input of workflow " + task.Nest.Ref.Alias + " does not match its schema: " + mismatch(faults)}
	}
	s.env.Input, s.env.Tasks = filled, nil
	s.env.Item, s.env.Last, s.env.Index = nil, nil, 0
	s.outer = nil
	return nil
}

func mismatch(faults []fault.Detail) string {
	message := strings.TrimSpace(faults[0].Field + " " + faults[0].Message)
	if len(faults) > 1 {
		message += fmt.Sprintf(", and %d more", len(faults)-1)
	}
	return message
}

// addressed lets the expressions of a scope ask for the addresses that answer
// waits: those of its own graph and of the graphs around it.
func (d *drive) addressed(s *scope) {
	if d.run.CallbackURL == nil {
		return
	}
	s.env.CallbackURL = func(taskID string) (string, error) {
		for at := s; at != nil; at = at.outer {
			if i, ok := at.graph.Index(taskID); ok && at.graph.Tasks[i].Wait != nil {
				return d.run.CallbackURL(at.prefix + taskID)
			}
		}
		return "", fmt.Errorf("no wait-for-signal has that id")
	}
}

// signal returns the event of a signal that a waiting task has got.
func (d *drive) signal(ctx context.Context, wait action) (event, bool, error) {
	if !wait.Signal || d.run.Signals == nil || len(d.ready) > 0 { // effects that are ready begin first
		return event{}, false, nil
	}
	payloads, err := d.run.Signals(ctx)
	if err != nil {
		return event{}, false, err
	}
	for _, w := range Waits(d.run.Plan, d.run.State) {
		if payload, came := payloads[w.Path]; came && w.Status == StatusWaiting {
			return event{
				Kind: eventCompleted, In: w.in, Task: w.position, Result: workflow.Result{Output: payload}, At: d.now(),
			}, true, nil
		}
	}
	return event{}, false, nil
}

// addSignals adds the arrived signals to an event that ends the time of a wait.
func (d *drive) addSignals(ctx context.Context, event *event) (err error) {
	if event.Kind != eventStarted && event.Kind != eventTimer || d.run.Signals == nil || !d.run.Plan.Waits() {
		return nil
	}
	isOver := func(w Waiting) bool {
		return w.Status == StatusWaiting && !w.WakeAt.IsZero() && !w.WakeAt.After(event.At)
	}
	if slices.ContainsFunc(Waits(d.run.Plan, d.run.State), isOver) {
		event.Signals, err = d.run.Signals(ctx)
	}
	return err
}
