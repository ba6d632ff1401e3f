package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/workflow"
)

func TestSuspends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{tasks: map[string]behaviour{"a": failsTimes(1, external(429, 30*time.Second)), "b": sleeps(10 * time.Second)}}
		plan := w.plan(t, "start>a start>b a>c b>c", `a effect {`+noJitter+`}`, "b effect", "c pure")
		state := NewState(plan, "e1")
		begin := time.Now().UTC()
		checkpoints := 0
		store := func(context.Context, *State) error { checkpoints++; return nil }
		verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: state}, store)
		require.NoError(t, err)
		require.Nil(t, verdict.Outcome)
		require.Equal(t, begin.Add(30*time.Second), verdict.WakeAt)
		require.Equal(t, 10*time.Second, time.Since(begin), "what can run runs before the suspension")
		require.Equal(t, 2, checkpoints)
		require.Equal(t, map[string]Status{"a": StatusWaiting, "b": StatusCompleted, "c": StatusPending}, statuses(plan, state))

		// Another process continues, first too early, then in time.
		state = copyOf(t, state)
		verdict, err = newRunner().Drive(t.Context(), &Run{Plan: plan, State: state}, store)
		require.NoError(t, err)
		require.Equal(t, begin.Add(30*time.Second), verdict.WakeAt)
		time.Sleep(17 * time.Second)
		verdict, err = newRunner().Drive(t.Context(), &Run{Plan: plan, State: state}, store)
		require.NoError(t, err)
		require.Equal(t, 30*time.Second, time.Since(begin))
		require.Equal(t, StatusCompleted, verdict.Outcome.Status)
		require.Equal(t, 2, state.Tasks[0].Attempt)
	})
}

// What waits longer than its workflow's time is over with that.
func TestSuspendsUntilTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plan := (&world{}).plan(t, "", `wait wait {"timeoutMs":172800000}`)
		run, begin := &Run{Plan: plan, State: NewState(plan, "e1")}, time.Now()
		verdict, err := newRunner().Drive(t.Context(), run, nil)
		require.NoError(t, err)
		require.Equal(t, workflow.TimeoutAsyncDefault, verdict.WakeAt.Sub(begin))
		time.Sleep(time.Until(verdict.WakeAt))
		verdict, err = newRunner().Drive(t.Context(), run, nil)
		require.NoError(t, err)
		require.Equal(t, StatusTimeout, verdict.Outcome.Status)
	})
}

// TestProgramWaitUntil drives a task type that waits: its program is run again
// when the time has come, as the same attempt.
func TestProgramWaitUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{tasks: map[string]behaviour{"a": func(_ context.Context, call *workflow.Call) (workflow.Result, error) {
			until := call.Env.Now.Add(time.Hour)
			if call.At.Before(until) {
				return workflow.Result{WaitUntil: until}, nil
			}
			require.Equal(t, 1, call.Attempt)
			return workflow.Result{Output: "waited"}, nil
		}}}
		plan := w.plan(t, "", `a pure {"waits":true}`)
		require.Equal(t, workflow.ModeAsync, plan.Mode)
		state := NewState(plan, "e1")
		verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: state}, nil)
		require.NoError(t, err)
		require.Nil(t, verdict.Outcome)
		time.Sleep(time.Until(verdict.WakeAt))
		verdict, err = newRunner().Drive(t.Context(), &Run{Plan: plan, State: copyOf(t, state)}, nil)
		require.NoError(t, err)
		require.Equal(t, map[string]any{"a": "waited"}, verdict.Outcome.Output)
	})
}

// TestFutureWaits holds that a signal is kept for runs that have not begun, but
// not for one that the items or the iterations leave no room for.
func TestFutureWaits(t *testing.T) {
	t.Parallel()
	w := &world{}
	plan := w.plan(t, "", `each each {"items":"input.items","concurrency":1,"tasks":[{"id":"poll","type":"loop",`+
		`"config":{"until":"false","max":3,"tasks":[{"id":"ask","type":"wait"}]}}]}`)
	state := NewState(plan, "e1")
	require.NotNil(t, FutureWait(plan, state, "each[2].poll[0].ask"), "nobody has counted the items")
	verdict, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: state, Input: items(2)}, nil)
	require.NoError(t, err)
	require.Nil(t, verdict.Outcome)
	for path, known := range map[string]bool{
		"each[0].poll[1].ask": true, "each[1].poll[2].ask": true,
		"each[2].poll[0].ask": false, "each[0].poll[3].ask": false, "each[1].poll[3].ask": false,
		"each[0].poll[1].ask[0]": false, "each[0].poll.ask": false, "each[0].poll[1]": false,
	} {
		require.Equal(t, known, FutureWait(plan, state, path) != nil, path)
	}
	plan = w.plan(t, "start>first first>ask", "first effect", "ask wait")
	require.NotNil(t, FutureWait(plan, NewState(plan, "e1"), "ask"), "it has not begun")
}

func TestWaitForSignal(t *testing.T) {
	t.Parallel()
	plan := (&world{}).plan(t, "start>wait wait>after", `wait wait {"timeoutMs":3600000,"onError":"continue"}`, `after pure {"reads":"{{ tasks.wait.output }}"}`)
	for name, test := range map[string]struct {
		early, late, never bool
		status             Status
	}{
		"it comes":        {status: StatusCompleted},
		"it was there":    {early: true, status: StatusCompleted},
		"it is seen late": {late: true, status: StatusCompleted},
		"never":           {never: true, status: StatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				state, signals := NewState(plan, "e1"), map[string]any{}
				drive := func() Verdict {
					verdict, err := newRunner().Drive(t.Context(), &Run{
						Plan: plan, State: state, Signals: func(context.Context) (map[string]any, error) { return signals, nil },
					}, nil)
					require.NoError(t, err)
					return verdict
				}
				if test.early {
					signals["wait"] = "payload"
				}
				verdict := drive()
				if !test.early {
					require.Nil(t, verdict.Outcome)
					require.Equal(t, time.Hour, time.Until(verdict.WakeAt))
					require.Equal(t, StatusWaiting, state.Tasks[0].Status)
					if !test.never {
						signals["wait"] = "payload"
					}
					if test.never || test.late {
						time.Sleep(time.Until(verdict.WakeAt))
					}
					state = copyOf(t, state)
					verdict = drive()
				}
				require.Equal(t, StatusCompleted, verdict.Outcome.Status)
				require.Equal(t, test.status, state.Tasks[0].Status)
				if test.never {
					require.Equal(t, "SIGNAL_TIMEOUT", state.Tasks[0].Error.Code)
				} else {
					require.Equal(t, "payload", state.Tasks[0].Output)
				}
			})
		})
	}
}

// Signals are looked for once a second while an execution is driven, and once more when
// the time of a wait is over.
func TestSignalAtTimeoutWins(t *testing.T) {
	t.Parallel()
	plan := (&world{}).plan(t, "", `each each {"items":"[1]","tasks":[{"id":"inner","type":"each","config":{"items":"[1]",`+
		`"tasks":[{"id":"wait","type":"wait","config":{"timeoutMs":800}}]}}]}`)
	synctest.Test(t, func(t *testing.T) {
		begun, state := time.Now(), NewState(plan, "e1")
		_, err := newRunner().Drive(t.Context(), &Run{Plan: plan, State: state, Signals: func(context.Context) (map[string]any, error) {
			if time.Since(begun) < 500*time.Millisecond {
				return nil, nil
			}
			return map[string]any{"each[0].inner[0].wait": nil}, nil // null is a payload too
		}}, func(context.Context, *State) error { return nil })
		require.NoError(t, err)
		require.Equal(t, StatusCompleted, state.Status)
	})
}

func TestCallbackURLPath(t *testing.T) {
	t.Parallel()
	var urls []string
	w := &world{other: func(_ context.Context, call *workflow.Call) (workflow.Result, error) {
		url, err := call.Env.CallbackURL("approve")
		urls = append(urls, url)
		return workflow.Result{Output: url}, err
	}}
	plan := w.plan(t, "", `each each {"items":"input.items","edges":[{"source":"start","target":"ask"},{"source":"ask","target":"approve"}],"tasks":[{"id":"ask","type":"pure"},{"id":"approve","type":"wait"}]}`)
	state := NewState(plan, "e1")
	verdict, err := newRunner().Drive(t.Context(), &Run{
		Plan: plan, State: state, Input: items(2),
		CallbackURL: func(path string) (string, error) { return "https://example.com/" + path, nil },
	}, nil)
	require.NoError(t, err)
	require.Nil(t, verdict.Outcome)
	require.Equal(t, []string{"https://example.com/each[0].approve", "https://example.com/each[1].approve"}, urls)
	waits := Waits(plan, state)
	require.Len(t, waits, 2)
	require.Equal(t, "each[1].approve", waits[1].Path)
}
