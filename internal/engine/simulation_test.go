package engine

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
// fail and are tried again; signals come early, late or never.
//
// Two seeds of three are calm: nothing in them competes, so a model that shares
// nothing with the engine says which tasks run how often, what they see and what
// comes of it, disturbed or not. In the others graphs end and fail early, time
// limits run out, executions are cancelled and tried again. Whatever is stored,
// and whenever an effect begins, the trial holds what must be true of any
// execution (simulation_hold_test.go).
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
	synctest.Test(t, func(t *testing.T) {
		for _, disturbed := range []bool{false, true} {
			r := newTrial(t, seed)
			if disturbed {
				r.chance = rand.New(rand.NewPCG(seed, 2))
			}
			r.run()
			if t.Failed() {
				return
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
}

// errKilled is the end of a process.
var errKilled = errors.New("the process was killed")

// attemptsMax is how often an execution that failed is tried again.
const attemptsMax = 3

// trial is one execution of a random workflow.
type trial struct {
	t      *testing.T
	seed   uint64
	calm   bool
	plan   *workflow.Plan
	specs  map[string]*spec // of the tasks, by id
	chance *rand.Rand       // of what disturbs; nil: nothing does
	began  time.Time

	mu      sync.Mutex
	attempt int    // of the execution
	durable []byte // the state as it was last stored
	outcome *Outcome
	held    held
}

func newTrial(t *testing.T, seed uint64) *trial {
	t.Helper()
	r := &trial{t: t, seed: seed, calm: seed%3 != 0, specs: map[string]*spec{}, began: time.Now(), held: newHeld()}
	b := planBuilder{trial: r, rand: rand.New(rand.NewPCG(seed, 1))}
	inner := b.compile(2, nil)
	r.plan = b.compile(0, inner)
	return r
}

func (r *trial) fault(format string, args ...any) {
	r.t.Helper()
	r.t.Errorf("seed %d: "+format, append([]any{r.seed}, args...)...)
}

// hash is chance that depends on nothing but the seed and a name.
func (r *trial) hash(parts ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, r.seed, parts)
	return h.Sum64() >> 7
}

func (r *trial) disturbs(oneIn int) bool { return r.chance != nil && r.chance.IntN(oneIn) == 0 }

// run drives the execution to its end, and in other than calm trials gives it
// further attempts.
func (r *trial) run() {
	r.attempt = 1
	r.store(NewState(r.plan, "e1"))
	for {
		if !r.drive() || r.t.Failed() {
			return
		}
		state := r.load()
		r.holdEnd(state)
		if r.calm {
			r.compare(state)
			return
		}
		if r.attempt == attemptsMax || !r.again(state) {
			return
		}
	}
}

// drive drives an attempt, over any number of kills, to its end.
func (r *trial) drive() bool {
	for range 2_000 {
		state := r.load()
		ctx, cancel := context.WithCancelCause(r.t.Context())
		var killer *time.Timer
		if r.disturbs(3) {
			killer = time.AfterFunc(time.Duration(r.chance.IntN(3000))*time.Millisecond, func() { cancel(errKilled) })
		} else if !r.calm && r.disturbs(20) {
			killer = time.AfterFunc(time.Duration(r.chance.IntN(3000))*time.Millisecond, func() { cancel(ErrCancelled) })
		}
		verdict, err := newRunner().Drive(ctx, &Run{
			Plan: r.plan, State: state, Input: map[string]any{},
			Signals: func(context.Context) (map[string]any, error) { return r.signals(state), nil },
		}, r.checkpoint)
		if killer != nil {
			killer.Stop()
		}
		cancel(nil)
		switch {
		case errors.Is(err, errKilled):
			time.Sleep(time.Duration(r.chance.IntN(20_000)) * time.Millisecond) // until somebody takes over
		case err != nil:
			r.fault("%v", err)
			return false
		case verdict.Outcome != nil && !r.disturbs(10): // else the process dies before the end is stored
			r.outcome = verdict.Outcome
			r.store(state)
			return true
		case verdict.Outcome == nil && !r.disturbs(10):
			r.store(state)
			time.Sleep(max(0, time.Until(r.wakes(verdict.WakeAt, state))))
		}
	}
	r.fault("the execution does not end")
	return false
}

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
	return r.began.Add(time.Duration(r.hash("signal", path)%60_000) * time.Millisecond), r.specOf(path).limit == 0
}

// signals are those that have come for the waits of a state.
func (r *trial) signals(state *State) map[string]any {
	payloads := map[string]any{}
	for _, w := range Waits(r.plan, state) {
		if comes, ever := r.signalTime(w.Path); ever && !comes.After(time.Now()) {
			payloads[w.Path] = "signal for " + w.Path
		}
	}
	return payloads
}

func (r *trial) checkpoint(_ context.Context, state *State) error {
	if r.disturbs(8) {
		return errKilled
	}
	if r.disturbs(4) { // effects that end meanwhile report together
		time.Sleep(time.Duration(r.chance.IntN(500)) * time.Millisecond)
	}
	r.store(state)
	if r.disturbs(8) {
		return errKilled
	}
	return nil
}

// store makes a state durable, and holds what must be true of it.
func (r *trial) store(state *State) {
	text, err := json.Marshal(state)
	if err != nil {
		r.fault("%v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.durable = text
	r.holdState(state)
}

func (r *trial) load() *State {
	r.mu.Lock()
	defer r.mu.Unlock()
	var state State
	if err := json.Unmarshal(r.durable, &state); err != nil {
		r.fault("%v", err)
	}
	return &state
}

// visited is one task of a state on its way through its graphs.
type visited struct {
	path  string
	graph *workflow.Graph
	tasks []TaskState // of the graph
	index int
	began time.Time // of the graph
	open  bool      // the graph goes on
}

func (v *visited) state() *TaskState { return &v.tasks[v.index] }

// each visits every task of a state.
func (r *trial) each(state *State, visit func(v visited)) {
	var walk func(graph *workflow.Graph, tasks []TaskState, prefix string, began time.Time, open bool)
	walk = func(graph *workflow.Graph, tasks []TaskState, prefix string, began time.Time, open bool) {
		for i := range tasks {
			task := graph.Tasks[i]
			visit(visited{prefix + task.ID, graph, tasks, i, began, open})
			if tasks[i].Nested == nil {
				continue
			}
			isOn := open && (tasks[i].Status == StatusRunning || tasks[i].Status == StatusWaiting)
			for _, frame := range tasks[i].Nested.Frames {
				walk(r.plan.NestedGraph(task.Nest), frame.Tasks, prefix+runName(task, frame.Index), frame.StartedAt, isOn && frame.Status == StatusRunning)
			}
		}
	}
	walk(r.plan.Graph, state.Tasks, "", state.StartedAt, state.Status == StatusRunning)
}
