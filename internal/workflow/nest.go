package workflow

import (
	"regexp"
	"time"

	"tranche/internal/expression"
	"tranche/internal/fault"
)

// Limits of nested work.
const (
	ItemsMax       = 10_000 // of one for-each
	IterationsMax  = 10_000 // of one loop
	ConcurrencyMax = 100    // runs of one for-each at a time
	SubDepthMax    = 8      // workflows within each other, the outermost not counted
)

// Latest stands for the highest active version of an alias (contract 4.4 and 5.4).
const Latest = "latest"

// versionPattern is how a version of a workflow is written.
var versionPattern = regexp.MustCompile(`^v[1-9][0-9]{0,8}$`)

// Ref names a published workflow; Version is v1, v2 … or Latest.
type Ref struct{ Alias, Version string }

// Reference is a Ref and the config that has it.
type Reference struct {
	Path string
	Ref  Ref
}

// NestKind says how often nested graphs run, and when.
type NestKind int

// The kinds.
const (
	NestEach NestKind = iota // once for each item, several at a time
	NestLoop                 // one run after the other
	NestOnce                 // once
)

// Nest is the nested graph of a task: a for-each, a loop or a sub-workflow.
type Nest struct {
	Kind NestKind
	// Graph is the nested graph; nil if it is the graph of the workflow that Ref names.
	Graph *Graph
	Ref   Ref
	// Input makes the input of that workflow; nil takes the item, or nothing.
	Input *expression.Tree

	// Of NestEach: the list, how many runs at a time, and whether a run that
	// fails leaves its error in the item's place instead of failing the task.
	Items       *expression.Expression
	Concurrency int
	Continue    bool

	// Of NestLoop: when it ends, the pause between two runs, and how many there
	// are at most.
	Until         *expression.Expression
	Delay         time.Duration
	IterationsMax int
}

// Wait is a task that ends with a signal from outside.
type Wait struct {
	Timeout time.Duration  // 0: only the workflow's
	Schema  *PayloadSchema // nil: any payload
}

// PayloadSchema is the JSON Schema of a signal's payload.
type PayloadSchema struct{ schema *schema }

// Check returns the faults of a payload, with paths within it.
func (s *PayloadSchema) Check(payload any) []fault.Detail {
	if err := s.schema.validate(payload); err != nil {
		return mismatches(err, payload, "")
	}
	return nil
}

// Link returns the plan together with the plans of the workflows that it runs,
// directly or through others, and the versions that were found for Latest. A
// reference that subs lacks fails its task when it is reached.
func (p *Plan) Link(subs map[Ref]*Plan, pins map[string]int) *Plan {
	linked := *p
	linked.Subs, linked.Pins = subs, pins
	waits := p.waits
	for _, sub := range subs {
		linked.Effects = linked.Effects || sub.Effects
		waits = waits || sub.waits
	}
	if waits && p.asked == ModeUnset {
		linked.Mode = ModeAsync
		if p.seconds == 0 {
			linked.Timeout = TimeoutAsyncDefault
		}
	}
	return &linked
}

// Waits reports whether a task of the plan or of a linked one waits, which
// makes it asynchronous.
func (p *Plan) Waits() bool {
	for _, sub := range p.Subs {
		if sub.waits {
			return true
		}
	}
	return p.waits
}

// NestedGraph returns the graph that a nest runs; nil if it is that of a workflow
// that is not linked.
func (p *Plan) NestedGraph(n *Nest) *Graph {
	if n.Graph != nil {
		return n.Graph
	}
	if sub := p.Subs[n.Ref]; sub != nil {
		return sub.Graph
	}
	return nil
}
