package engine

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"tranche/internal/workflow"
)

// CI runs 10,000 seeds: go test ./internal/engine -run Simulation -simulation.seeds 10000.
// One that fails is replayed with -simulation.seed.
var (
	simulationSeeds = flag.Uint64("simulation.seeds", 200, "how many seeds to simulate")
	simulationSeed  = flag.Uint64("simulation.seed", 0, "the seed to replay")
)

// TestSimulation runs random graphs of all kinds of tasks on a simulated clock
// twice: once undisturbed, once killed between any two steps. Effects take time,
// fail and are tried again; signals come early, late or never. After each step
// it holds that no effect begins before the state that says so is durable, that
// what is durable as decided stays decided, and that a completed effect is not
// repeated. Every execution ends, and a calm one, in which nothing competes,
// gives what the undisturbed one gave.
func TestSimulation(t *testing.T) {
	t.Parallel()
	first, last := uint64(1), *simulationSeeds
	if *simulationSeed != 0 {
		first, last = *simulationSeed, *simulationSeed
	}
	for _, part := range []uint64{0, 1} {
		t.Run(fmt.Sprint("seeds modulo 2 = ", part), func(t *testing.T) {
			t.Parallel()
			for seed := first; seed <= last; seed++ {
				if seed%2 == part {
					simulate(t, seed)
				}
			}
		})
	}
}

func simulate(t *testing.T, seed uint64) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("to replay: go test ./internal/engine -run Simulation -simulation.seed %d", seed)
		}
	}()
	calm := seed%3 != 0
	synctest.Test(t, func(t *testing.T) {
		undisturbed := newTrial(t, seed, calm)
		undisturbed.run()
		if t.Failed() {
			return
		}
		disturbed := newTrial(t, seed, calm)
		disturbed.chance = rand.New(rand.NewPCG(seed, 2))
		disturbed.run()
		if calm && !t.Failed() {
			require.Empty(t, cmp.Diff(timeless(undisturbed.outcome), timeless(disturbed.outcome)), "seed %d", seed)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
}

// errKilled is the end of a process.
var errKilled = errors.New("the process was killed")

// trial is one execution of a random workflow.
type trial struct {
	t      *testing.T
	seed   uint64
	calm   bool
	plan   *workflow.Plan
	chance *rand.Rand // of what disturbs; nil: nothing does

	mu      sync.Mutex
	durable []byte            // the state as it was last stored
	decided map[string]Status // tasks that it says are over, by path
	began   time.Time
	outcome *Outcome
}

func newTrial(t *testing.T, seed uint64, calm bool) *trial {
	t.Helper()
	r := &trial{t: t, seed: seed, calm: calm, decided: map[string]Status{}, began: time.Now()}
	b := planBuilder{trial: r, rand: rand.New(rand.NewPCG(seed, 1))}
	inner := b.compile(2, nil)
	r.plan = b.compile(0, inner)
	return r
}

// hash is chance that depends on nothing but the seed and a name.
func (r *trial) hash(parts ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, r.seed, parts)
	return h.Sum64() >> 7
}

// run drives the execution, over any number of kills, to its end.
func (r *trial) run() {
	state := NewState(r.plan, "e1")
	r.store(state)
	for range 2_000 {
		state = r.load()
		ctx, cancel := context.WithCancelCause(r.t.Context())
		var killer *time.Timer
		if r.disturbs(3) {
			killer = time.AfterFunc(time.Duration(r.chance.IntN(3000))*time.Millisecond, func() { cancel(errKilled) })
		} else if !r.calm && r.disturbs(20) {
			killer = time.AfterFunc(time.Duration(r.chance.IntN(3000))*time.Millisecond, func() { cancel(ErrCancelled) })
		}
		verdict, err := newRunner().Drive(ctx, &Run{
			Plan: r.plan, State: state, Input: map[string]any{}, Signals: r.signals,
		}, r.checkpoint)
		if killer != nil {
			killer.Stop()
		}
		cancel(nil)
		switch {
		case errors.Is(err, errKilled):
			time.Sleep(time.Duration(r.chance.IntN(20_000)) * time.Millisecond) // until somebody takes over
		case err != nil:
			r.t.Errorf("seed %d: %v", r.seed, err)
			return
		case verdict.Outcome != nil && !r.disturbs(10): // else the process dies before the end is stored
			r.outcome = verdict.Outcome
			return
		case verdict.Outcome == nil && !r.disturbs(10):
			r.store(state)
			time.Sleep(max(0, time.Until(r.wakes(verdict.WakeAt, state))))
		}
	}
	r.t.Errorf("seed %d: the execution does not end", r.seed)
}

func (r *trial) disturbs(oneIn int) bool { return r.chance != nil && r.chance.IntN(oneIn) == 0 }

// wakes is when a suspended execution goes on: at its time, or with a signal.
func (r *trial) wakes(at time.Time, state *State) time.Time {
	for _, w := range Waits(r.plan, state) {
		if comes, ever := r.signalTime(w.Path); ever && w.Status == StatusWaiting && comes.Before(at) {
			at = comes
		}
	}
	return at
}

// signalTime is when the signal for a wait comes, if it ever does. A wait
// without a limit always gets one, one with a limit never: what comes first
// would be chance.
func (r *trial) signalTime(path string) (time.Time, bool) {
	return r.began.Add(time.Duration(r.hash("signal", path)%60_000) * time.Millisecond), !strings.Contains(path, "never")
}

func (r *trial) signals(context.Context) (map[string]any, error) {
	payloads := map[string]any{}
	for _, w := range Waits(r.plan, r.load()) {
		if comes, ever := r.signalTime(w.Path); ever && !comes.After(time.Now()) {
			payloads[w.Path] = "signal for " + w.Path
		}
	}
	return payloads, nil
}

func (r *trial) checkpoint(_ context.Context, state *State) error {
	if r.disturbs(8) {
		return errKilled
	}
	r.store(state)
	if r.disturbs(8) {
		return errKilled
	}
	return nil
}

// store makes a state durable, and holds that nothing decided changes.
func (r *trial) store(state *State) {
	text, err := json.Marshal(state)
	if err != nil {
		r.t.Errorf("seed %d: %v", r.seed, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.durable = text
	r.each(state, func(path string, _ *workflow.Task, task *TaskState) {
		before, known := r.decided[path]
		if known && before != task.Status {
			r.t.Errorf("seed %d: task %s was %s and is %s", r.seed, path, before, task.Status)
		}
		switch task.Status { //nolint:exhaustive // the others are not over
		case StatusCompleted, StatusSkipped, StatusFailed:
			r.decided[path] = task.Status
		}
	})
}

func (r *trial) load() *State {
	r.mu.Lock()
	defer r.mu.Unlock()
	var state State
	if err := json.Unmarshal(r.durable, &state); err != nil {
		r.t.Errorf("seed %d: %v", r.seed, err)
	}
	return &state
}

// each visits every task of a state.
func (r *trial) each(state *State, visit func(path string, task *workflow.Task, t *TaskState)) {
	var walk func(graph *workflow.Graph, tasks []TaskState, prefix string)
	walk = func(graph *workflow.Graph, tasks []TaskState, prefix string) {
		for i := range tasks {
			task := graph.Tasks[i]
			visit(prefix+task.ID, task, &tasks[i])
			if tasks[i].Nested == nil {
				continue
			}
			for _, frame := range tasks[i].Nested.Frames {
				walk(r.plan.NestedGraph(task.Nest), frame.Tasks, prefix+runName(task, frame.Index))
			}
		}
	}
	walk(r.plan.Graph, state.Tasks, "")
}

// effect is what an effect of the trial does: it holds what must hold before an
// effect begins, takes its time, and fails as often as the seed says.
func (r *trial) effect(ctx context.Context, call *workflow.Call) (workflow.Result, error) {
	if call.IdempotencyKey != "e1/"+call.Path {
		r.t.Errorf("seed %d: the key of %s is %s", r.seed, call.Path, call.IdempotencyKey)
	}
	found := false
	r.each(r.load(), func(path string, _ *workflow.Task, t *TaskState) {
		found = found || path == call.Path && t.Status == StatusRunning && t.Attempt == call.Attempt
	})
	if !found {
		r.t.Errorf("seed %d: attempt %d of effect %s began before the state that says so was durable", r.seed, call.Attempt, call.Path)
	}
	select {
	case <-time.After(time.Duration(r.hash("takes", call.Path, call.Attempt)%2_000) * time.Millisecond):
	case <-ctx.Done():
		return workflow.Result{}, ctx.Err()
	}
	return r.pure(ctx, call)
}

func (r *trial) pure(_ context.Context, call *workflow.Call) (workflow.Result, error) {
	fails := []int{0, 0, 0, 1, 2, 9}[r.hash("fails", call.Path)%6]
	if call.Attempt <= fails {
		return workflow.Result{}, own("X")
	}
	result := workflow.Result{Output: map[string]any{"path": call.Path, "index": json.Number(fmt.Sprint(call.Env.Index))}}
	if !r.calm && r.hash("ends", call.Path)%8 == 0 {
		result.End = &workflow.End{Failed: r.hash("failed", call.Path)%2 == 0}
	}
	return result, nil
}

// trialType makes the tasks of a trial.
type trialType struct {
	trial  *trial
	effect bool
}

func (y trialType) Compile(c *workflow.ConfigReader) workflow.Program {
	c.Tree("reads")
	return trialProgram(y)
}

type trialProgram trialType

func (p trialProgram) Effect() bool { return p.effect }

func (p trialProgram) Run(ctx context.Context, call *workflow.Call) (workflow.Result, error) {
	if p.effect {
		return p.trial.effect(ctx, call)
	}
	return p.trial.pure(ctx, call)
}

// pauseType is a delay.
type pauseType struct{}

func (pauseType) Compile(c *workflow.ConfigReader) workflow.Program {
	c.Waits()
	return pauseProgram(time.Duration(c.Int("ms", 0, 0, 1_000_000)) * time.Millisecond)
}

type pauseProgram time.Duration

func (pauseProgram) Effect() bool { return false }

func (p pauseProgram) Run(_ context.Context, call *workflow.Call) (workflow.Result, error) {
	if until := call.Env.Now.Add(time.Duration(p)); call.At.Before(until) {
		return workflow.Result{WaitUntil: until}, nil
	}
	return workflow.Result{Output: "paused"}, nil
}

// planBuilder makes random workflows.
type planBuilder struct {
	trial *trial
	rand  *rand.Rand
	ids   int
}

func (b *planBuilder) compile(depth int, inner *workflow.Plan) *workflow.Plan {
	tasks, edges := b.graph(depth, inner != nil)
	def, details := workflow.Parse(nil, tasks, edges, nil)
	require.Empty(b.trial.t, details)
	def.TimeoutSeconds, def.ExecutionMode = 30*24*3600, workflow.ModeAsync
	plan, err := workflow.Compile(def, map[string]workflow.TaskType{
		"pure": trialType{b.trial, false}, "effect": trialType{b.trial, true}, "pause": pauseType{},
		"each": nestType{"each"}, "loop": nestType{"loop"}, "sub": nestType{"sub"}, "wait": nestType{"wait"},
	})
	require.NoError(b.trial.t, err)
	if inner != nil {
		plan = plan.Link(map[workflow.Ref]*workflow.Plan{{Alias: "inner", Version: "v1"}: inner}, nil)
	}
	return plan
}

func number(n int) json.Number { return json.Number(fmt.Sprint(n)) }

// graph makes tasks and edges from earlier to later ones; depth is how deep it
// is nested.
func (b *planBuilder) graph(depth int, subs bool) (tasks, edges []any) {
	n := 1 + b.rand.IntN(5-depth)
	var ids []string
	for range n {
		kinds := []string{"pure", "effect", "effect", "pause", "wait"}
		if depth < 2 {
			kinds = append(kinds, "each", "loop")
		}
		if subs {
			kinds = append(kinds, "sub")
		}
		kind := kinds[b.rand.IntN(len(kinds))]
		id := fmt.Sprintf("t%d", b.ids)
		b.ids++
		config := b.config(kind, depth, subs)
		if config["timeoutMs"] != nil && kind == "wait" {
			id = "never" + id
		}
		linked := b.rand.IntN(3) == 0
		for _, before := range ids {
			if b.rand.IntN(2) == 0 {
				edges = append(edges, map[string]any{"source": before, "target": id})
				linked = true
			}
		}
		if !linked || len(ids) == 0 || b.rand.IntN(4) == 0 {
			edges = append(edges, map[string]any{"source": "start", "target": id})
		} else if !hasEdge(edges, id) {
			edges = append(edges, map[string]any{"source": ids[len(ids)-1], "target": id})
		}
		ids = append(ids, id)
		tasks = append(tasks, map[string]any{"id": id, "type": kind, "config": config})
	}
	return tasks, edges
}

func hasEdge(edges []any, target string) bool {
	for _, edge := range edges {
		if edge.(map[string]any)["target"] == target { //nolint:forcetypeassert // made here
			return true
		}
	}
	return false
}

func (b *planBuilder) config(kind string, depth int, subs bool) map[string]any {
	config := map[string]any{"onError": "continue"}
	if !b.trial.calm && b.rand.IntN(3) == 0 {
		delete(config, "onError")
	}
	if b.rand.IntN(6) == 0 {
		config["when"] = "1 > 2"
	}
	if !b.trial.calm && b.rand.IntN(6) == 0 && kind != "wait" {
		config["timeoutMs"] = number(1 + b.rand.IntN(5_000))
	}
	switch kind {
	case "effect":
		config["retry"] = map[string]any{
			"maxAttempts": number(3), "initialDelayMs": number([]int{0, 20, 8_000}[b.rand.IntN(3)]), "retryOn": []any{"X"},
		}
	case "pause":
		config["ms"] = number([]int{0, 1_000, 60_000}[b.rand.IntN(3)])
	case "wait":
		if b.rand.IntN(3) == 0 {
			config["timeoutMs"] = number(1 + b.rand.IntN(20_000))
		}
	case "each":
		config["items"] = []string{"[]", "[1]", "[1, 2, 3]", "1..5"}[b.rand.IntN(4)]
		config["concurrency"], config["continue"] = number(1+b.rand.IntN(3)), !b.trial.calm && b.rand.IntN(2) == 0
		config["tasks"], config["edges"] = b.graph(depth+1, subs)
	case "loop":
		config["until"], config["max"] = fmt.Sprintf("index == %d", b.rand.IntN(4)), number(1+b.rand.IntN(4))
		config["delayMs"] = number([]int{0, 1_000, 10_000}[b.rand.IntN(3)])
		config["tasks"], config["edges"] = b.graph(depth+1, subs)
	case "sub":
		config["alias"], config["version"] = "inner", "v1"
	}
	return config
}
