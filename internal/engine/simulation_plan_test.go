package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/expression"
	"tranche/internal/workflow"
)

// spec is what a task of a trial does, as the trial knows it without the engine.
type spec struct {
	kind    string
	onError string   // fail, continue, or the id that goto names
	when    string   // empty, false, or the id of a task that must have completed
	reads   string   // id of a task whose status it reads; empty: none
	targets []string // of its edges
	isEntry bool
	sources []string

	cases     []string      // of a choose
	otherwise string        // of a choose: its default
	isSource  bool          // an effect that reads a data source
	delay     time.Duration // of an effect, a pause, a loop
	limit     time.Duration // of a wait that never gets its signal
	items     int           // of an each
	parallel  int           // of an each
	goesOn    bool          // of an each, over items that fail
	until     int           // of a loop: the index of its last iteration
	most      int           // of a loop
}

// tries is how often an effect is tried.
const tries = 3

// planBuilder makes random workflows.
type planBuilder struct {
	trial *trial
	rand  *rand.Rand
	ids   int
}

func (b *planBuilder) compile(depth int, inner *workflow.Plan) *workflow.Plan {
	tasks, edges := b.graph(depth, inner != nil, nil)
	def, details := workflow.Parse(nil, tasks, edges, nil)
	require.Empty(b.trial.t, details)
	def.TimeoutSeconds, def.ExecutionMode = 30*24*3600, workflow.ModeAsync
	plan, err := workflow.Compile(def, map[string]workflow.TaskType{
		"pure": trialType{b.trial, false}, "choose": trialType{b.trial, false}, "effect": trialType{b.trial, true}, "pause": pauseType{b.trial},
		"each": nestType{"each"}, "loop": nestType{"loop"}, "sub": nestType{"sub"}, "wait": nestType{"wait"},
	})
	require.NoError(b.trial.t, err)
	if inner != nil {
		plan = plan.Link(map[workflow.Ref]*workflow.Plan{{Alias: "inner", Version: "v1"}: inner}, nil)
	}
	return plan
}

func number(n int) json.Number { return json.Number(fmt.Sprint(n)) }

func (b *planBuilder) oneOf(texts ...string) string { return texts[b.rand.IntN(len(texts))] }

// graph makes tasks, and edges from earlier to later ones; the definition has
// the tasks in another order. depth is how deep it is nested, readable are the
// tasks around that its expressions may read.
func (b *planBuilder) graph(depth int, subs bool, readable []string) (tasks, edges []any) {
	kinds := []string{"pure", "choose", "effect", "effect", "pause", "wait"}
	if depth < 2 {
		kinds = append(kinds, "each", "loop")
	}
	if subs {
		kinds = append(kinds, "sub")
	}
	var ids []string
	link := func(source, target string) {
		edges = append(edges, map[string]any{"source": source, "target": target})
		b.trial.specs[source].targets = append(b.trial.specs[source].targets, target)
		b.trial.specs[target].sources = append(b.trial.specs[target].sources, source)
	}
	for range 1 + b.rand.IntN(5-depth) {
		id, made := fmt.Sprintf("t%d", b.ids), &spec{kind: b.oneOf(kinds...)}
		b.ids++
		b.trial.specs[id] = made
		for _, before := range ids {
			if b.rand.IntN(2) == 0 {
				link(before, id)
			}
		}
		if len(ids) > 0 && len(made.sources) == 0 && b.rand.IntN(3) > 0 {
			link(ids[len(ids)-1], id)
		}
		if len(made.sources) == 0 || b.rand.IntN(6) == 0 {
			edges = append(edges, map[string]any{"source": "start", "target": id})
			made.isEntry = true
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		made := b.trial.specs[id]
		config := b.common(made, append(slices.Clip(readable), made.sources...))
		b.config(made, config, depth, subs, append(slices.Clip(readable), made.sources...))
		tasks = append(tasks, map[string]any{"id": id, "type": made.kind, "config": config})
	}
	b.rand.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
	return tasks, edges
}

// common makes what every config may have.
func (b *planBuilder) common(made *spec, readable []string) map[string]any {
	config := map[string]any{}
	made.onError = "continue"
	if !b.trial.calm && b.rand.IntN(3) == 0 {
		made.onError = "fail"
	} else {
		config["onError"] = "continue"
	}
	if n := len(made.targets); n > 0 && b.rand.IntN(4) == 0 {
		made.onError = made.targets[b.rand.IntN(n)]
		config["onError"] = map[string]any{"goto": made.onError}
	}
	if b.rand.IntN(8) == 0 {
		made.when, config["when"] = "false", "1 > 2"
	} else if len(readable) > 0 && b.rand.IntN(5) == 0 {
		made.when = b.oneOf(readable...)
		config["when"] = fmt.Sprintf(`tasks.%s.status == "completed"`, made.when)
	}
	if !b.trial.calm && b.rand.IntN(6) == 0 && made.kind != "wait" {
		config["timeoutMs"] = number(1 + b.rand.IntN(5_000))
	}
	return config
}

// config makes what the kind has.
func (b *planBuilder) config(made *spec, config map[string]any, depth int, subs bool, readable []string) {
	switch made.kind {
	case "pure", "choose", "effect":
		if len(readable) > 0 && b.rand.IntN(2) == 0 {
			made.reads = b.oneOf(readable...)
			config["reads"] = fmt.Sprintf("{{ tasks.%s.status }}", made.reads)
		}
	case "pause":
		made.delay = time.Duration([]int{0, 1_000, 60_000}[b.rand.IntN(3)]) * time.Millisecond
		config["ms"] = number(int(made.delay.Milliseconds()))
	case "wait":
		if b.rand.IntN(3) == 0 {
			made.limit = time.Duration(1+b.rand.IntN(20_000)) * time.Millisecond
			config["timeoutMs"] = number(int(made.limit.Milliseconds()))
		}
	case "each":
		made.items, made.parallel, made.goesOn = b.rand.IntN(6), 1+b.rand.IntN(3), !b.trial.calm && b.rand.IntN(2) == 0
		config["items"] = []string{"[]", "[1]", "[1, 2]", "[1, 2, 3]", "1..4", "map(0..4, # + 1)"}[made.items]
		config["concurrency"], config["continue"] = number(made.parallel), made.goesOn
		config["tasks"], config["edges"] = b.graph(depth+1, subs, readable)
	case "loop":
		made.until, made.most = b.rand.IntN(4), 1+b.rand.IntN(4)
		made.delay = time.Duration([]int{0, 1_000, 10_000}[b.rand.IntN(3)]) * time.Millisecond
		config["until"], config["max"] = fmt.Sprintf("index == %d && last != nil", made.until), number(made.most)
		config["delayMs"] = number(int(made.delay.Milliseconds()))
		config["tasks"], config["edges"] = b.graph(depth+1, subs, readable)
	case "sub":
		config["alias"], config["version"] = "inner", "v1"
	}
	switch made.kind {
	case "choose":
		b.choice(made, config)
	case "effect":
		made.delay = time.Duration([]int{0, 20, 8_000}[b.rand.IntN(3)]) * time.Millisecond
		config["retry"] = map[string]any{
			"maxAttempts": number(tries), "initialDelayMs": number(int(made.delay.Milliseconds())), "retryOn": []any{"X"},
		}
		if made.isSource = b.rand.IntN(3) == 0; made.isSource {
			config["source"] = "bureau"
		}
	}
}

// choice lets every edge but a default be chosen.
func (b *planBuilder) choice(made *spec, config map[string]any) {
	var cases []any
	for _, target := range made.targets {
		if made.otherwise == "" && b.rand.IntN(3) == 0 {
			made.otherwise, config["default"] = target, target
			continue
		}
		made.cases = append(made.cases, target)
		cases = append(cases, map[string]any{"goto": target})
	}
	config["cases"] = cases
}

// trialType makes the tasks of a trial.
type trialType struct {
	trial  *trial
	effect bool
}

func (y trialType) Compile(c *workflow.ConfigReader) workflow.Program {
	for _, chosen := range c.Objects("cases") {
		chosen.Goto("goto")
	}
	c.Otherwise("default")
	c.DataSource(c.Text("source"))
	return trialProgram{y, c.Tree("reads")}
}

type trialProgram struct {
	trialType
	reads *expression.Tree
}

func (p trialProgram) Effect() bool { return p.effect }

func (p trialProgram) Run(ctx context.Context, call *workflow.Call) (workflow.Result, error) {
	if p.effect {
		if err := p.trial.takeTime(ctx, call); err != nil {
			return workflow.Result{}, err
		}
	}
	return p.trial.answer(call, p.reads)
}

// pauseType is a delay.
type pauseType struct{ trial *trial }

func (y pauseType) Compile(c *workflow.ConfigReader) workflow.Program {
	c.Waits()
	return pauseProgram{y.trial, time.Duration(c.Int("ms", 0, 0, 1_000_000)) * time.Millisecond}
}

type pauseProgram struct {
	trial *trial
	time  time.Duration
}

func (pauseProgram) Effect() bool { return false }

func (p pauseProgram) Run(_ context.Context, call *workflow.Call) (workflow.Result, error) {
	until := call.Env.Now.Add(p.time)
	if call.At.Before(until) {
		return workflow.Result{WaitUntil: until}, nil
	}
	if p.time > 0 {
		p.trial.holdWaited(call, until)
	}
	return workflow.Result{Output: "paused"}, nil
}

// specOf is the spec of the task that a path leads to.
func (r *trial) specOf(path string) *spec { return r.specs[path[strings.LastIndexByte(path, '.')+1:]] }

// fails is how often a task fails before it succeeds.
func (r *trial) fails(path string) int {
	return []int{0, 0, 0, 1, 2, 9}[r.hash("fails", path, r.attempt)%6]
}

// takes is how long an effect takes.
func (r *trial) takes(path string, attempt int) time.Duration {
	return time.Duration(r.hash("takes", path, attempt)%2_000) * time.Millisecond
}

// chosen are the edges that a choose takes when it succeeds.
func (r *trial) chosen(path string) []string {
	taken := []string{}
	for _, target := range r.specOf(path).targets {
		if r.hash("chosen", path, target)%2 == 0 {
			taken = append(taken, target)
		}
	}
	return taken
}

// output is what a task gives.
func output(path string, index int, item, reads any) map[string]any {
	return map[string]any{"path": path, "index": number(index), "item": item, "reads": reads}
}

// answer is what a task does when it runs.
func (r *trial) answer(call *workflow.Call, reads *expression.Tree) (workflow.Result, error) {
	r.holdSight(call)
	if call.Attempt <= r.fails(call.Env.Path) {
		err := own("X")
		if r.hash("answers", call.Env.Path, call.Attempt)%2 == 0 {
			err.StatusCode = 503
		}
		r.note(call, err)
		return workflow.Result{}, err
	}
	var read any
	if reads != nil {
		var err error
		if read, err = reads.Eval(call.Env); err != nil {
			return workflow.Result{}, err
		}
	}
	r.note(call, nil)
	result := workflow.Result{Output: output(call.Env.Path, call.Env.Index, call.Env.Item, read)}
	if r.specOf(call.Env.Path).kind == "choose" {
		result.Targets = r.chosen(call.Env.Path)
	}
	if !r.calm && r.hash("ends", call.Env.Path, r.attempt)%8 == 0 {
		result.End = &workflow.End{Failed: r.hash("failed", call.Env.Path)%2 == 0}
	}
	return result, nil
}
