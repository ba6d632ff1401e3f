package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"tranche/internal/expression"
	"tranche/internal/fault"
	"tranche/internal/workflow"
)

// copyOf is a state as another process reads it.
func copyOf(t require.TestingT, state *State) *State {
	text, err := json.Marshal(state)
	require.NoError(t, err)
	var read State
	require.NoError(t, json.Unmarshal(text, &read))
	return &read
}

// failsTimes fails so often and then gives its number of calls.
func failsTimes(times int32, err error) behaviour {
	var calls atomic.Int32
	return func(context.Context, *workflow.Call) (workflow.Result, error) {
		if n := calls.Add(1); n <= times {
			return workflow.Result{}, err
		}
		return workflow.Result{Output: "done"}, nil
	}
}

func sleeps(duration time.Duration) behaviour {
	return func(ctx context.Context, call *workflow.Call) (workflow.Result, error) {
		select {
		case <-time.After(duration):
			return workflow.Result{Output: call.Env.Path}, nil
		case <-ctx.Done():
			return workflow.Result{}, ctx.Err()
		}
	}
}

const noJitter = `"retry":{"maxAttempts":3,"initialDelayMs":1000,"factor":2,"maxDelayMs":60000,"jitter":0}`

func TestRetry(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		config   string
		task     behaviour
		took     time.Duration
		attempts int
		status   Status
		output   any
	}{
		"backs off":       {`{` + noJitter + `}`, failsTimes(2, external(503, 0)), 3 * time.Second, 3, StatusCompleted, "done"},
		"gives up":        {`{` + noJitter + `}`, failsTimes(3, external(503, 0)), 3 * time.Second, 3, StatusFailed, nil},
		"obeys the wait":  {`{` + noJitter + `}`, failsTimes(1, external(429, 4*time.Second)), 4 * time.Second, 2, StatusCompleted, "done"},
		"not retryable":   {`{` + noJitter + `}`, failsTimes(1, own("X")), 0, 1, StatusFailed, nil},
		"not by default":  {`{}`, failsTimes(1, external(503, 0)), 0, 1, StatusFailed, nil},
		"only what it is": {`{"retry":{"retryOn":["X"],"initialDelayMs":1000,"jitter":0}}`, failsTimes(1, own("X")), time.Second, 2, StatusCompleted, "done"},
		"cannot in time":  {`{` + noJitter + `}`, failsTimes(1, external(429, time.Hour)), 0, 1, StatusFailed, nil},
		"as time is over": {`{` + noJitter + `}`, failsTimes(1, external(429, time.Minute)), 0, 1, StatusFailed, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &world{tasks: map[string]behaviour{"a": test.task}}
				begin := time.Now()
				_, state := w.drive(t, w.plan(t, "", "a effect "+test.config))
				require.Equal(t, test.took, time.Since(begin))
				require.Equal(t, test.attempts, state.Tasks[0].Attempt)
				require.Equal(t, test.status, state.Tasks[0].Status)
				require.Equal(t, test.output, state.Tasks[0].Output)
				require.Equal(t, test.status == StatusFailed, state.Tasks[0].Error != nil)
				require.Equal(t, slices.Repeat([]string{"e1/a"}, test.attempts), w.calls)
			})
		})
	}
}

func TestJitterIsDeterministic(t *testing.T) {
	t.Parallel()
	delay := func(execution string, attempt int) time.Duration {
		w := &world{}
		plan := w.plan(t, "", `a effect {"retry":{"maxAttempts":9,"initialDelayMs":1000,"factor":1,"jitter":1}}`)
		state := NewState(plan, execution)
		at := time.Unix(0, 0)
		next(plan, state, &event{Kind: eventStarted, At: at}, &actionBuffer{})
		state.Tasks[0].Attempt = attempt
		next(plan, state, &event{Kind: eventFailed, Err: external(0, 0), At: at}, &actionBuffer{})
		return state.Tasks[0].WakeAt.Sub(at)
	}
	require.Equal(t, delay("e1", 1), delay("e1", 1))
	require.NotEqual(t, delay("e1", 1), delay("e1", 2))
	require.NotEqual(t, delay("e1", 1), delay("e2", 1))
	require.LessOrEqual(t, delay("e1", 1), time.Second)
}

func TestEffectsRunConcurrently(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{tasks: map[string]behaviour{"a": sleeps(3 * time.Second), "b": sleeps(2 * time.Second), "c": sleeps(time.Second)}}
		plan := w.plan(t, "start>a start>b b>c a>j c>j", "a effect", "b effect", "c effect", "j pure")
		begin := time.Now()
		outcome, _ := w.drive(t, plan)
		require.Equal(t, 3*time.Second, time.Since(begin))
		require.Equal(t, 4, outcome.TasksCompleted)
	})
}

func TestFailureStopsRunningEffects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{tasks: map[string]behaviour{"a": sleeps(time.Minute), "b": fails(own("X")), "c": fails(external(503, 4*time.Second))}}
		plan := w.plan(t, "start>a start>b start>c a>d", "a effect", "b effect", `c effect {`+noJitter+`}`, "d pure")
		begin := time.Now()
		outcome, state := w.drive(t, plan)
		require.Zero(t, time.Since(begin))
		require.Equal(t, StatusFailed, outcome.Status)
		got := statuses(plan, state)
		require.Equal(t, StatusCancelled, got["a"])
		require.Equal(t, StatusFailed, got["b"])
		require.Equal(t, StatusCancelled, got["c"])
		require.Equal(t, StatusPending, got["d"])
	})
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		edges   string
		tasks   []string
		took    time.Duration
		outcome Outcome
		status  Status
	}{
		"of the workflow": {
			tasks: []string{"a effect"}, took: time.Minute, status: StatusTimeout,
			outcome: Outcome{Status: StatusTimeout, StatusCode: 504, SubCode: fault.ExecutionTimeout, ErrorMessage: "the execution exceeded its time limit of 1m0s"},
		},
		"of the workflow, though its failure would be handled": {
			edges: "start>a a>b", tasks: []string{`a effect {"onError":"continue"}`, "b pure"}, took: time.Minute, status: StatusTimeout,
			outcome: Outcome{Status: StatusTimeout, StatusCode: 504, SubCode: fault.ExecutionTimeout, ErrorMessage: "the execution exceeded its time limit of 1m0s"},
		},
		"of a task": {
			tasks: []string{`a effect {"timeoutMs":1500}`}, took: 1500 * time.Millisecond, status: StatusFailed,
			outcome: Outcome{Status: StatusFailed, StatusCode: 502, SubCode: fault.ExternalServiceError, ErrorMessage: "task a failed: the task took longer than its timeoutMs", TasksFailed: 1},
		},
		"of a task, tried again": {
			tasks: []string{`a effect {"timeoutMs":1500,` + noJitter + `}`}, took: 3*1500*time.Millisecond + 3*time.Second, status: StatusFailed,
			outcome: Outcome{Status: StatusFailed, StatusCode: 502, SubCode: fault.ExternalServiceError, ErrorMessage: "task a failed: the task took longer than its timeoutMs", TasksFailed: 1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &world{tasks: map[string]behaviour{"a": sleeps(time.Hour)}}
				begin := time.Now()
				outcome, state := w.drive(t, w.plan(t, test.edges, test.tasks...))
				require.Equal(t, test.took, time.Since(begin))
				require.Equal(t, test.status, state.Tasks[0].Status)
				test.outcome.Output = map[string]any{}
				require.Equal(t, &test.outcome, outcome)
			})
		})
	}
}

// An effect that is stopped because the time of its execution is over ends that
// as timed out, also where the limit lies between two milliseconds.
func TestEffectIsStoppedAtTheDeadline(t *testing.T) {
	t.Parallel()
	for name, edges := range map[string]string{"alone": "start>a", "beside another": "start>a start>b"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &world{tasks: map[string]behaviour{"a": sleeps(time.Hour), "b": sleeps(time.Hour)}}
				plan := w.plan(t, edges, []string{"a effect", "b effect"}[:strings.Count(edges, ">")]...)
				run := &Run{Plan: plan, State: NewState(plan, "e1")}
				run.State.Deadline = time.Now().UTC().Add(time.Second + 400*time.Microsecond)
				time.Sleep(500 * time.Microsecond)
				verdict, err := newRunner().Drive(t.Context(), run, func(context.Context, *State) error { return nil })
				require.NoError(t, err)
				require.Equal(t, StatusTimeout, verdict.Outcome.Status)
				require.Equal(t, StatusTimeout, run.State.Tasks[0].Status)
				require.Equal(t, fault.ExecutionTimeout, verdict.Outcome.SubCode)
			})
		})
	}
}

// A program decides itself whether what it did not finish may be tried again.
func TestTimeoutKeepsTheProgramsError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{tasks: map[string]behaviour{"a": func(ctx context.Context, _ *workflow.Call) (workflow.Result, error) {
			<-ctx.Done()
			return workflow.Result{}, own("NO_ANSWER")
		}}}
		_, state := w.drive(t, w.plan(t, "", `a effect {"timeoutMs":1500,`+noJitter+`}`))
		require.Equal(t, "NO_ANSWER", state.Tasks[0].Error.Code)
		require.Equal(t, 1, state.Tasks[0].Attempt)
	})
}

func TestDeadlineStopsPureTasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{tasks: map[string]behaviour{"a": sleeps(2 * time.Minute)}}
		outcome, _ := w.drive(t, w.plan(t, "start>a a>b", "a pure", "b pure"))
		require.Equal(t, StatusTimeout, outcome.Status)
		require.Equal(t, 1, outcome.TasksCompleted)
		require.Equal(t, []string{"e1/a"}, w.calls)

		// Nothing begins in an execution whose time was over before.
		w = &world{}
		plan := w.plan(t, "", "a effect")
		state := NewState(plan, "e1")
		state.Deadline = time.Now().Add(-time.Second)
		verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: state}, nil)
		require.NoError(t, err)
		require.Equal(t, StatusTimeout, verdict.Outcome.Status)
		require.Empty(t, w.calls)
	})
}

func TestCheckpointPrecedesEffects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{tasks: map[string]behaviour{"a": sleeps(time.Second), "c": failsTimes(1, external(503, 0))}}
		plan := w.plan(t, "start>p p>a p>b a>c b>c c>q", "p pure", "a effect", "b effect", `c effect {`+noJitter+`}`, "q pure")
		var stored []map[string]Status
		var calls []int
		state := NewState(plan, "e1")
		verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: state}, func(_ context.Context, s *State) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			stored = append(stored, statuses(plan, s))
			calls = append(calls, len(w.calls))
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, StatusCompleted, verdict.Outcome.Status)
		row := func(p, a, b, c, q Status) map[string]Status {
			return map[string]Status{"p": p, "a": a, "b": b, "c": c, "q": q}
		}
		require.Equal(t, []map[string]Status{
			row(StatusCompleted, StatusRunning, StatusRunning, StatusPending, StatusPending),
			row(StatusCompleted, StatusCompleted, StatusCompleted, StatusRunning, StatusPending),
			row(StatusCompleted, StatusCompleted, StatusCompleted, StatusWaiting, StatusPending),
			row(StatusCompleted, StatusCompleted, StatusCompleted, StatusRunning, StatusPending),
		}, stored)
		require.Equal(t, []int{1, 3, 4, 4}, calls)
	})
}

// Effects that end while a state is written share the next one.
func TestEffectsShareACheckpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const effects, concurrency = 1_000, 100
		w := &world{}
		plan := w.plan(t, "", each("effect", fmt.Sprintf(`,"concurrency":%d`, concurrency)))
		checkpoints := 0
		run := &Run{Plan: plan, State: NewState(plan, "e1"), Input: items(effects)}
		verdict, err := newRunner().Drive(t.Context(), run, func(context.Context, *State) error {
			checkpoints++
			synctest.Wait() // until all that run have ended
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, StatusCompleted, verdict.Outcome.Status)
		require.Len(t, w.calls, effects)
		// Those that one begins and those that ran meanwhile are all that may run.
		require.LessOrEqual(t, checkpoints, 2*effects/concurrency+1)
	})
}

// An effect that is ready when the failure of another is read does not begin.
func TestStoppedEffectsDoNotBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		completes, fails := make(chan struct{}), make(chan struct{})
		w := &world{tasks: map[string]behaviour{
			"each[0].score": func(context.Context, *workflow.Call) (workflow.Result, error) {
				<-completes
				return workflow.Result{}, nil
			},
			"each[1].score": func(context.Context, *workflow.Call) (workflow.Result, error) {
				<-fails
				return workflow.Result{}, own("X")
			},
			"b": sleeps(time.Second),
		}}
		plan := w.plan(t, "start>each start>a a>b", each("effect", `,"concurrency":2,"onError":"continue"`), "a effect", "b effect")
		checkpoints := 0
		run := &Run{Plan: plan, State: NewState(plan, "e1"), Input: items(3)}
		verdict, err := newRunner().Drive(t.Context(), run, func(context.Context, *State) error {
			if checkpoints++; checkpoints == 2 { // before b begins
				close(completes)
				synctest.Wait()
				close(fails)
				synctest.Wait()
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, StatusCompleted, verdict.Outcome.Status)
		slices.Sort(w.calls)
		require.Equal(t, []string{"e1/a", "e1/b", "e1/each[0].score", "e1/each[1].score"}, w.calls)
		require.Equal(t, StatusCancelled, run.State.Tasks[0].Nested.Frames[2].Tasks[0].Status)
		require.Equal(t, 2, checkpoints)
	})
}

func TestCheckpointFailureEndsTheDrive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{tasks: map[string]behaviour{"a": sleeps(time.Hour), "b": sleeps(time.Second)}}
		plan := w.plan(t, "start>a start>b b>c", "a effect", "b effect", "c effect")
		lost := errors.New("the lease is lost")
		calls := 0
		begin := time.Now()
		_, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: NewState(plan, "e1")}, func(context.Context, *State) error {
			if calls++; calls == 2 {
				return lost
			}
			return nil
		})
		require.ErrorIs(t, err, lost)
		require.Equal(t, time.Second, time.Since(begin))
		require.NotContains(t, w.calls, "e1/c")
	})
}

// A task begins with its condition: now() is the same in both.
func TestTaskStartsWithItsCondition(t *testing.T) {
	t.Parallel()
	plan := (&world{}).plan(t, "", `a effect {"when":"true"}`)
	state, at := NewState(plan, "e1"), time.Unix(0, 0)
	next(plan, state, &event{Kind: eventStarted, At: at}, &actionBuffer{})
	actions := next(plan, state, &event{Kind: eventAdmitted, At: at.Add(time.Second)}, &actionBuffer{})
	require.Equal(t, []action{{Kind: actionRun}}, actions)
	require.Equal(t, at, state.Tasks[0].StartedAt)
}

func TestCancelAndShutdown(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]error{"cancelled": ErrCancelled, "shutdown": errors.New("the process stops")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &world{tasks: map[string]behaviour{"b": sleeps(time.Hour), "c": fails(external(503, 4*time.Second))}}
				plan := w.plan(t, "start>a a>b a>c", "a pure", "b effect", `c effect {`+noJitter+`}`)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(cause) })
				state := NewState(plan, "e1")
				begin := time.Now()
				verdict, err := newRunner().Drive(ctx, &Run{Plan: plan, State: state}, nil)
				require.Equal(t, time.Second, time.Since(begin))
				if name == "shutdown" {
					require.ErrorIs(t, err, cause)
					require.Equal(t, StatusRunning, state.Status)
					return
				}
				require.NoError(t, err)
				require.Equal(t, &Outcome{
					Status: StatusCancelled, StatusCode: 500, Output: map[string]any{},
					ErrorMessage: "the execution was cancelled", TasksCompleted: 1,
				}, verdict.Outcome)
				require.Equal(t, map[string]Status{"a": StatusCompleted, "b": StatusCancelled, "c": StatusCancelled}, statuses(plan, state))
			})
		})
	}
}

// TestDriveResumesAfterCrash goes on with the state of a process that died while two effects
// ran: they run again under the same keys, what was completed does not, and
// now() is the time the task first began.
func TestDriveResumesAfterCrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen []time.Time
		w := &world{tasks: map[string]behaviour{"b": func(_ context.Context, call *workflow.Call) (workflow.Result, error) {
			seen = append(seen, call.Env.Now)
			require.Equal(t, 1, call.Attempt)
			return workflow.Result{Output: json.Number("1.10")}, nil
		}}}
		plan := w.plan(t, "start>a a>b a>c b>d c>d", "a pure", "b effect", "c effect", `d pure {"reads":"{{ tasks.b.output }}"}`)
		var stored *State
		died := errors.New("died")
		_, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: NewState(plan, "e1")}, func(_ context.Context, s *State) error {
			stored = copyOf(t, s)
			require.Empty(t, cmp.Diff(s, stored))
			return died
		})
		require.ErrorIs(t, err, died)
		began := time.Now().UTC()
		time.Sleep(40 * time.Second)
		verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: stored}, nil)
		require.NoError(t, err)
		require.Equal(t, 4, verdict.Outcome.TasksCompleted)
		require.Equal(t, []time.Time{began}, seen)
		require.Equal(t, began, stored.StartedAt)
		slices.Sort(w.calls)
		require.Equal(t, []string{"e1/a", "e1/b", "e1/c", "e1/d"}, w.calls)
	})
}

func TestDriveRefusesStateOfAnotherPlan(t *testing.T) {
	t.Parallel()
	w := &world{}
	one, two := w.plan(t, "", "a pure"), w.plan(t, "start>a a>b", "a pure", "b pure")
	_, err := newRunner().Drive(t.Context(), &Run{Plan: one, State: NewState(two, "e1")}, nil)
	require.Error(t, err)
}

func TestNextAfterTheEnd(t *testing.T) {
	t.Parallel()
	w := &world{}
	plan := w.plan(t, "", "a pure")
	_, state := w.drive(t, plan)
	before := copyOf(t, state)
	require.Empty(t, next(plan, state, &event{Kind: eventCancelled, At: time.Now()}, &actionBuffer{}))
	require.Empty(t, cmp.Diff(before, copyOf(t, state)))
}

// What panics beside a program is an error too: nobody would let go of the execution.
func TestPanicsAreErrors(t *testing.T) {
	t.Parallel()
	w := &world{}
	plan := w.plan(t, "", "a pure")
	plan.Graph.Tasks[0].When = new(expression.Expression) // of nothing
	outcome, _ := w.drive(t, plan)
	require.Equal(t, "task a failed: an unexpected error occurred", outcome.ErrorMessage)

	plan = w.plan(t, "", "wait wait")
	_, err := newRunner().Drive(t.Context(), &Run{
		Plan: plan, State: NewState(plan, "e1"), Signals: func(context.Context) (map[string]any, error) { panic("broken") },
	}, func(context.Context, *State) error { return nil })
	require.ErrorContains(t, err, "panic: broken")
}
