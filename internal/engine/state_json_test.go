package engine

import (
	"encoding/json"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/workflow"
)

// TestStateJSON compares with encoding/json in all members that a state has: byte
// for byte, and of an execution that has completed by what is read back.
func TestStateJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var state State
		draw(t, reflect.ValueOf(&state).Elem(), "state", 9)
		state.Attempt = max(state.Attempt, 1)
		whole, err := json.Marshal(&state)
		require.NoError(t, err)
		text, err := state.JSON()
		require.NoError(t, err)
		want, got := State{}, State{ExecutionID: state.ExecutionID}
		require.NoError(t, json.Unmarshal(whole, &want))
		require.NoError(t, json.Unmarshal(text, &got))
		if state.Status != StatusCompleted {
			require.Equal(t, string(whole), string(text))
			return
		}
		require.LessOrEqual(t, len(text), len(whole))
		if !state.CompletedAt.IsZero() {
			want.ExecutionID, want.Deadline = state.ExecutionID, time.Time{}
			if end := want.endTask(); end != nil {
				output, _ := end.Output.(map[string]any)
				got.RestoreOutput(output)
			}
		}
		require.Equal(t, want, got)
	})
}

// What most completed executions have in common is not written.
func TestStateJSONOmitsDerivedValues(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_700_000_000_123).UTC()
	later := at.Add(time.Millisecond)
	state := State{
		ExecutionID: "id", Attempt: 1, Status: StatusCompleted, StartedAt: at, Deadline: at.Add(time.Minute), CompletedAt: later,
		Tasks: []TaskState{
			{Status: StatusCompleted, Attempt: 1, StartedAt: at, CompletedAt: at, Output: json.Number("1"), Taken: []int{1, 2}},
			{Status: StatusCompleted, Attempt: 1, StartedAt: at, CompletedAt: later, Taken: []int{3}, Nested: &Nested{Next: 1, Frames: []*Frame{{
				Status: StatusCompleted, StartedAt: at, CompletedAt: later, Tasks: []TaskState{{Status: StatusCompleted, Attempt: 1, StartedAt: at, CompletedAt: later}},
			}}}},
			{Status: StatusSkipped, CompletedAt: later},
			{Status: StatusCompleted, Attempt: 1, StartedAt: later, CompletedAt: later, End: &workflow.End{}, Output: map[string]any{"a": "b"}},
		},
	}
	text, err := state.JSON()
	require.NoError(t, err)
	require.Equal(t, `{"startedAt":"2023-11-14T22:13:20.123Z","completedAt":"2023-11-14T22:13:20.124Z","tasks":[`+
		`{"output":1,"taken":[1,2]},{"completedAt":"2023-11-14T22:13:20.124Z","taken":[3],"nested":{"next":1,"frames":[{"index":0,"status":"completed",`+
		`"startedAt":"2023-11-14T22:13:20.123Z","completedAt":"2023-11-14T22:13:20.124Z","tasks":[{"completedAt":"2023-11-14T22:13:20.124Z"}]}]}},`+
		`{"status":"skipped","completedAt":"2023-11-14T22:13:20.124Z"},{"end":{}}]}`, string(text))
	read := State{ExecutionID: "id"}
	require.NoError(t, json.Unmarshal(text, &read))
	read.RestoreOutput(map[string]any{"a": "b"})
	state.Deadline = time.Time{}
	require.Equal(t, state, read)
}

func TestStateJSONErrors(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]*State{
		"no value":       {Tasks: []TaskState{{Output: make(chan int)}, {Status: StatusPending}}},
		"no year":        {StartedAt: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"no attachments": {Tasks: []TaskState{{End: &workflow.End{Attachments: []workflow.Attachment{{Metadata: map[string]any{"a": make(chan int)}}}}}}},
	} {
		_, err := state.JSON()
		require.Error(t, err, name)
	}
}

// Plans are shared: reading a state that began with other versions leaves them
// as they are.
func TestStateUnmarshalLeavesPlanPins(t *testing.T) {
	t.Parallel()
	plan := &workflow.Plan{Graph: &workflow.Graph{}, Pins: map[string]int{"a": 2}}
	state := NewState(plan, "id")
	require.NoError(t, json.Unmarshal([]byte(`{"pins": {"a": 1, "b": 1}}`), state))
	require.Equal(t, map[string]int{"a": 1, "b": 1}, state.Pins)
	require.Equal(t, map[string]int{"a": 2}, plan.Pins)
}

// draw gives a value and all in it something, often nothing. Lists and pointers
// go as deep as depth.
func draw(t *rapid.T, v reflect.Value, at string, depth int) {
	switch into := v.Addr().Interface().(type) {
	case *time.Time:
		if ms := rapid.SampledFrom([]int64{0, 1, 1_500, 1_700_000_000_123}).Draw(t, at); ms != 0 {
			*into = time.UnixMilli(ms).UTC()
		}
		return
	case *any:
		*into = rapid.SampledFrom([]any{
			nil, true, "<b>", json.Number("1.10"), []any{}, []any{nil, "x"}, map[string]any{}, map[string]any{"b": json.Number("0"), "a<": []any{false}},
		}).Draw(t, at)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			draw(t, v.Field(i), at+"."+v.Type().Field(i).Name, depth)
		}
	case reflect.Slice:
		if n := rapid.IntRange(-1, min(depth, 2)).Draw(t, at); n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range v.Len() {
			draw(t, v.Index(i), at+"["+strconv.Itoa(i)+"]", depth-1)
		}
	case reflect.Pointer:
		// The pointers within a list are never nil.
		if v.Type() == reflect.TypeFor[*Frame]() || depth > 0 && rapid.Bool().Draw(t, at) {
			v.Set(reflect.New(v.Type().Elem()))
			draw(t, v.Elem(), at, depth-1)
		}
	case reflect.Map:
		if rapid.Bool().Draw(t, at) {
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(reflect.ValueOf("<k>"), reflect.Zero(v.Type().Elem()))
		}
	case reflect.String:
		if v.Type() == reflect.TypeFor[Status]() { // never empty
			v.SetString(string(rapid.SampledFrom([]Status{StatusCompleted, StatusFailed, StatusSkipped}).Draw(t, at)))
			return
		}
		v.SetString(rapid.SampledFrom([]string{"", "a", "<é>&\u2028", "\"\\\n\x7f", "\xff"}).Draw(t, at))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.SampledFrom([]int64{0, 1, 12}).Draw(t, at))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, at))
	default:
		t.Fatalf("%s is of a kind that is not known here: %s", at, v.Type())
	}
}
