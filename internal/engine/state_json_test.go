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

// TestStateJSON compares with encoding/json byte for byte, in all members that
// a state has.
func TestStateJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var state, again State
		draw(t, reflect.ValueOf(&state).Elem(), "state", 9)
		want, err := json.Marshal(&state)
		require.NoError(t, err)
		got, err := state.JSON()
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
		require.NoError(t, json.Unmarshal(got, &again))
	})
}

func TestStateJSONRefuses(t *testing.T) {
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
func TestReadingAStateLeavesThePlan(t *testing.T) {
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
		v.SetString(rapid.SampledFrom([]string{"", "a", "<é>&\u2028", "\"\\\n\x7f", "\xff"}).Draw(t, at))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.SampledFrom([]int64{0, 1, 12}).Draw(t, at))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, at))
	default:
		t.Fatalf("%s is of a kind that is not known here: %s", at, v.Type())
	}
}
