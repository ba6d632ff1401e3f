package execution_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/workflow"
)

// TestResultJSON compares with encoding/json byte for byte.
func TestResultJSON(t *testing.T) {
	t.Parallel()
	values := rapid.SampledFrom([]json.RawMessage{json.RawMessage(`null`), json.RawMessage(`{}`), json.RawMessage(`{"a":[true,"é"],"b":1.10}`)})
	require.Equal(t, 9, reflect.TypeFor[execution.Result]().NumField(), "a new member is to be drawn below too")
	message := "a < b & \"c\""
	rapid.Check(t, func(t *rapid.T) {
		r := execution.Result{
			IsSuccess: rapid.Bool().Draw(t, "isSuccess"), StatusCode: rapid.IntRange(0, 599).Draw(t, "statusCode"),
			Output: values.Draw(t, "output"), CustomOutput: values.Draw(t, "customOutput"),
			Attachments: rapid.SampledFrom([][]workflow.Attachment{nil, {}, {{FileName: "<f>", Metadata: map[string]any{"a": json.Number("1.0")}}}}).Draw(t, "attachments"),
			Notes:       rapid.SampledFrom([][]string{nil, {}, {"<n>", ""}}).Draw(t, "notes"),
			Notices:     rapid.SampledFrom([][]workflow.Notice{nil, {}, {{Code: "C", Message: "<m>", CreatedAt: time.UnixMilli(5).UTC()}}}).Draw(t, "notices"),

			ErrorMessage: rapid.SampledFrom([]*string{nil, &message}).Draw(t, "errorMessage"),
			ErrorSubCode: rapid.SampledFrom([]fault.SubCode{"", fault.ExecutionTimeout}).Draw(t, "errorSubCode"),
		}
		want, err := json.Marshal(r)
		require.NoError(t, err)
		got, err := r.JSON()
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	})
	_, err := execution.ResultText(&engine.Outcome{CustomOutput: 5})
	require.Error(t, err, "no JSON value")
}
