package task

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"tranche/internal/workflow"
)

func TestEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config string
		output string
		end    workflow.End
	}{
		{`{}`, `null`, workflow.End{}},
		{
			`{"status":"failed","statusCode":418,"errorMessage":"no {{ input.what }}"}`, `null`,
			workflow.End{Failed: true, StatusCode: 418, ErrorMessage: "no tea"},
		},
		{
			`{"status":"{{ input.ok ? \"completed\" : \"failed\" }}","statusCode":"{{ input.code }}"}`, `null`,
			workflow.End{Failed: true, StatusCode: 409},
		},
		{
			`{"output":{"a":"{{ input.amount }}"},"customOutput":["{{ input.what }}"]}`, `{"a":1.10}`,
			workflow.End{CustomOutput: []any{"tea"}},
		},
		{
			`{"output":"{{ input }}","customOutput":"{{ input.amount }}"}`, `{"amount":1.10,"code":409,"list":["x",2],"ok":false,"what":"tea"}`,
			workflow.End{CustomOutput: num("1.10")},
		},
		{
			`{"notes":["n {{ input.amount }}",null,3],"tags":"{{ input.list }}"}`, `null`,
			workflow.End{Notes: []string{"n 1.10", "3"}, Tags: []string{"x", "2"}},
		},
		{
			`{"notices":[{"code":"C","level":"warning","message":"{{ input.what }} is out","source":"kitchen"},{"message":"m"}]}`, `null`,
			workflow.End{Notices: []workflow.Notice{
				{Code: "C", Level: workflow.LevelWarning, Message: "tea is out", Source: "kitchen"},
				{Level: workflow.LevelInfo, Message: "m"},
			}},
		},
		{
			`{"attachments":[{"fileName":"{{ input.what }}.pdf","metadata":{"n":"{{ input.amount }}"}},{"fileName":"b.csv"}]}`, `null`,
			workflow.End{Attachments: []workflow.Attachment{
				{FileName: "tea.pdf", Metadata: map[string]any{"n": num("1.10")}}, {FileName: "b.csv", Metadata: map[string]any{}},
			}},
		},
	} {
		p := program(t, "end", c.config)
		require.False(t, p.Effect())
		output, result := run(t, p, `{"what":"tea","ok":false,"code":409,"amount":1.10,"list":["x",2]}`)
		require.Equal(t, c.output, output, c.config)
		require.Empty(t, cmp.Diff(c.end, *result.End), c.config)
	}
}

func TestEndRefusals(t *testing.T) {
	t.Parallel()
	requireRefusals(t, "end", []refusal{
		{`{"status":"done"}`, "tasks[0].config.status", "must be completed or failed"},
		{`{"status":1}`, "tasks[0].config.status", "must be completed or failed"},
		{`{"statusCode":199}`, "tasks[0].config.statusCode", "must be an integer from 200 to 599"},
		{`{"statusCode":600}`, "tasks[0].config.statusCode", "must be an integer"},
		{`{"statusCode":200.5}`, "tasks[0].config.statusCode", "must be an integer"},
		{`{"statusCode":"200"}`, "tasks[0].config.statusCode", "must be an integer"},
		{`{"output":[1]}`, "tasks[0].config.output", "must be an object"},
		{`{"output":"text"}`, "tasks[0].config.output", "must be an object"},
		{`{"output":{"a":["{{ 1 + }}"]}}`, "tasks[0].config.output.a[0]", ""},
		{`{"notes":"one"}`, "tasks[0].config.notes", "must be an array"},
		{`{"notes":["a",{"b":1}]}`, "tasks[0].config.notes[1]", "must be a text"},
		{`{"tags":["` + strings.Repeat("a", 65) + `"]}`, "tasks[0].config.tags[0]", "1 to 64"},
		{`{"tags":[""]}`, "tasks[0].config.tags[0]", "1 to 64"},
		{`{"tags":[` + strings.Repeat(`"a",`, 50) + `"a"]}`, "tasks[0].config.tags", "too many"},
		{`{"notices":[{"level":"loud","message":"m"}]}`, "tasks[0].config.notices[0].level", "must be info, warning or error"},
		{`{"notices":[{"code":"c"}]}`, "tasks[0].config.notices[0].message", "is required"},
		{`{"notices":[{"message":"m","taskId":"x"}]}`, "tasks[0].config.notices[0].taskId", "not a known member"},
		{`{"notices":["m"]}`, "tasks[0].config.notices[0]", "must be an object"},
		{`{"attachments":[{"metadata":{}}]}`, "tasks[0].config.attachments[0].fileName", "is required"},
		{`{"attachments":[{"fileName":"a","metadata":1}]}`, "tasks[0].config.attachments[0].metadata", "must be an object"},
		{`{"errorMessage":{}}`, "tasks[0].config.errorMessage", ""},
	})
}

func TestEndFailures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ config, code, message string }{
		{`{"output":"{{ input.list }}"}`, codeInvalidResult, "output: must be an object"},
		{`{"status":"{{ input.none }}x"}`, codeInvalidResult, "status: must be"},
		{`{"statusCode":"{{ 1000 }}"}`, codeInvalidResult, "statusCode: must be"},
		{`{"tags":["a","{{ input.empty }}"]}`, codeInvalidResult, "tags[1]: must be"},
		{`{"notices":"{{ input.list }}"}`, codeInvalidResult, "notices[0]: must be an object"},
		{`{"notes":["ok","{{ input.none + 1 }}"]}`, workflow.CodeExpression, "notes[1]: "},
	} {
		failed := failing(t, program(t, "end", c.config), `{"list":["x"],"empty":""}`)
		require.Equal(t, c.code, failed.Code, c.config)
		require.Contains(t, failed.Message, c.message)
	}
}
