package task

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A delay is counted from when its task began, however often it is asked again.
func TestDelay(t *testing.T) {
	t.Parallel()
	for _, config := range []string{`{"forMs":60000}`, `{"until":"dateAdd(now(), 1, \"minutes\")"}`} {
		p := program(t, "delay", config)
		call := callWith(t, `{}`)
		until := call.Env.Now.Add(time.Minute)
		for _, passed := range []time.Duration{0, time.Minute - time.Millisecond} {
			call.At = call.Env.Now.Add(passed)
			result, err := p.Run(t.Context(), call)
			require.NoError(t, err)
			require.Equal(t, until, result.WaitUntil)
		}
		for _, passed := range []time.Duration{time.Minute, time.Hour} {
			call.At = call.Env.Now.Add(passed)
			result, err := p.Run(t.Context(), call)
			require.NoError(t, err)
			require.Zero(t, result.WaitUntil)
			require.Equal(t, map[string]any{"until": "2026-11-21T09:01:00.000Z"}, result.Output)
		}
	}
	require.Equal(t, codeDelay, failing(t, program(t, "delay", `{"until":"input.at"}`), `{"at":"soon"}`).Code)
	requireRefusals(t, "delay", []refusal{
		{`{}`, "tasks[0].config.forMs", "is required"},
		{`{"forMs":1,"until":"now()"}`, "tasks[0].config.until", "must not be given together with forMs"},
	})
}
