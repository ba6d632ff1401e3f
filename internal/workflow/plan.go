package workflow

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"tranche/internal/expression"
	"tranche/internal/fault"
)

// Mode says whether an execute call waits for the result (contract 5.1).
type Mode string

// The modes; ModeUnset leaves the choice to the graph.
const (
	ModeUnset Mode = ""
	ModeSync  Mode = "sync"
	ModeAsync Mode = "async"
)

// Plan is a compiled definition. But for its weight it never changes, and it is
// safe for concurrent use.
type Plan struct {
	Graph *Graph
	// Mode is sync or async: as the definition says, else async if the
	// graph waits, else sync.
	Mode    Mode
	Timeout time.Duration // the workflow's time limit
	// Effects reports whether any task reaches outside or waits; without, an
	// execution runs to its end in memory.
	Effects bool
	// Warnings do not forbid publishing: a rule that can never hit, a gap.
	Warnings []fault.Detail
	// Refusals forbid publishing the workflow. Versions that are already published still
	// run.
	Refusals []fault.Detail
	// References are the published workflows that the plan's tasks run.
	References []Reference
	// Subs are their plans and those of their own references, set by Link.
	Subs map[Ref]*Plan
	// Pins say which versions Link found for Latest, by alias.
	Pins map[string]int
	// Weight is the memory that an execution of the plan holds. All links of the plan
	// share it.
	Weight *Weight

	schema   *schema
	asked    Mode // of the definition
	seconds  int  // the time limit of the definition
	waits    bool
	readsNow bool // an expression asks for the time
}

// Graph is a set of tasks and the edges between them. Tasks are in the order of the
// definition; edges are positions in it.
type Graph struct {
	Tasks   []*Task
	indexes map[string]int
}

// Index returns the position of a task.
func (g *Graph) Index(id string) (int, bool) {
	i, ok := g.indexes[id]
	return i, ok
}

// Task is one node of a graph.
type Task struct {
	ID, Type, Name string
	// Source names the data source that the task reads; empty if it is none.
	Source  string
	Index   int
	Entry   bool  // has an edge from start
	Sources []int // tasks with an edge to this one
	Targets []int // tasks this one has an edge to
	// OnSuccess are the targets taken when the program chooses none: all but
	// the one of onError's goto. OnSkip are those taken when the task is
	// skipped: all but goto edges (contract 4.3).
	OnSuccess []int
	OnSkip    []int
	When      *expression.Expression // nil: always
	Timeout   time.Duration          // of one attempt; 0: only the workflow's
	Retry     RetryPolicy
	OnError   OnError
	Program   Program
	// Nest is set if nested graphs do the task's work, Wait if a signal
	// from outside does; Program is not run then.
	Nest *Nest
	Wait *Wait
	// Read reports whether any expression of the graph reads the task.
	Read bool
	// Children are the graphs nested in the task, compiled like the outer one.
	Children []*Graph
}

// ErrorMode is the effect of a task's failure on its graph.
type ErrorMode string

// The error modes of contract 4.3.
const (
	ErrorFail     ErrorMode = "fail"     // the execution fails
	ErrorContinue ErrorMode = "continue" // the edges are taken
	ErrorGoto     ErrorMode = "goto"     // only one edge is taken
)

// OnError is a task's answer to its own failure; Goto is a position.
type OnError struct {
	Mode ErrorMode
	Goto int
}

// RetryPolicy says which failures are tried again and when.
type RetryPolicy struct {
	MaxAttempts  int // the first included; 0 and 1: no retry
	InitialDelay time.Duration
	Factor       float64
	MaxDelay     time.Duration // bounds every delay, the first too
	Jitter       float64       // 0–1: the share of the delay that chance decides
	// RetryOn replaces TaskError.Retryable if it is not empty: codes
	// (EXTERNAL_SERVICE_ERROR) and status codes (503) that are retried.
	RetryOn []string
}

// Retries reports whether err is tried again after so many attempts.
func (p RetryPolicy) Retries(err *TaskError, attempts int) bool {
	if attempts >= p.MaxAttempts {
		return false
	}
	if len(p.RetryOn) == 0 {
		return err.Retryable
	}
	return slices.Contains(p.RetryOn, err.Code) ||
		err.StatusCode != 0 && slices.Contains(p.RetryOn, strconv.Itoa(err.StatusCode))
}

// Delay is the time before the next attempt, after so many attempts. chance is
// in [0,1) and decides the part of the delay that Jitter leaves to it; a
// RetryAfter longer than the delay is obeyed.
func (p RetryPolicy) Delay(attempts int, chance float64, retryAfter time.Duration) time.Duration {
	delay := float64(p.InitialDelay)
	for range attempts - 1 {
		if delay >= float64(p.MaxDelay) {
			break
		}
		delay *= p.Factor
	}
	delay = min(delay, float64(p.MaxDelay))
	delay -= delay * p.Jitter * chance
	return max(time.Duration(delay), retryAfter)
}

func number(n int) json.Number { return json.Number(strconv.Itoa(n)) }
