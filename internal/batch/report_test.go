package batch

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(string(want), string(got)))
}

func someResults() []itemResult {
	file := "=loans.csv"
	row := func(n int32) *int32 { return &n }
	return []itemResult{
		{
			itemIndex: 0, rowNumber: row(2), fileName: &file, executionID: uuid.MustParse("0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"),
			status: "completed", statusCode: row(200),
			inputJSON:  []byte(`{"name":"Zoë, \"Z\"","amount":1000.10,"address":{"zip":"01234"},"tags":[1.10,"x"]}`),
			resultJSON: []byte(`{"isSuccess":true,"statusCode":200,"output":{"decision":"=approve","rate":-0.0450,"terms":{"months":36},"none":null,"empty":{}},"customOutput":null,"notes":[],"notices":[],"errorMessage":null}`),
		},
		{
			itemIndex: 1, rowNumber: row(3), fileName: &file, executionID: uuid.MustParse("0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12"),
			status: "failed", statusCode: row(422),
			inputJSON:  []byte(`{"name":"'=x","amount":"-abc","months":-5,"owner":true}`),
			resultJSON: []byte(`{"isSuccess":false,"statusCode":422,"output":{},"customOutput":null,"notes":[],"notices":[],"errorMessage":"=loans.csv, row 3: amount: is not a number"}`),
		},
		{
			itemIndex: 2, executionID: uuid.MustParse("0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13"), status: "failed", statusCode: row(500),
			inputJSON: []byte(`{}`), resultJSON: []byte(`{"isSuccess":false,"statusCode":500,"output":{},"errorMessage":"\t@"}`),
		},
	}
}

func TestReportsAreAsExpected(t *testing.T) {
	t.Parallel()
	inputs := []string{"name", "amount", "months", "address.zip", "tags", "owner"}
	outputs := []string{"decision", "rate", "terms.months", "none", "empty"}
	var table, failed, lines bytes.Buffer
	results, err := newResultsTable(&table, inputs, outputs)
	require.NoError(t, err)
	failures, err := newFailedTable(&failed, inputs)
	require.NoError(t, err)
	jsonl := resultsLines{w: &lines}
	for _, r := range someResults() {
		require.NoError(t, r.decode())
		require.NoError(t, results.write(&r))
		require.NoError(t, jsonl.write(&r))
		if r.status != "completed" {
			require.NoError(t, failures.write(&r))
		}
	}
	require.NoError(t, results.flush())
	require.NoError(t, failures.flush())
	golden(t, "results.csv", table.Bytes())
	golden(t, "failed.csv", failed.Bytes())
	golden(t, "results.jsonl", lines.Bytes())
}

func TestColumnsAreTheUnionInOrder(t *testing.T) {
	t.Parallel()
	s := newColumnSet("b", "a")
	s.addLeaves(decodeObject(`{"z":1,"a":2,"c":{"y":1,"x":{}}}`))
	s.addLeaves(decodeObject(`{"c":{"y":1,"w":null},"b":[]}`))
	require.Equal(t, []string{"b", "a", "c.x", "c.y", "z", "c.w"}, s.names)
}

// What failed.csv holds reads back as the input that was stored.
func TestFailedTableReadsBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.StringMatching("'{0,2}[=+@\t;-]?[a-z\n\"',;|é ]{1,5}")
		inputs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) map[string]any {
			input := map[string]any{"name": texts.Draw(t, "name"), "amount": json.Number(rapid.StringMatching(`-?[1-9][0-9]{0,20}(\.[0-9]{1,5})?`).Draw(t, "amount"))}
			if rapid.Bool().Draw(t, "address") {
				input["address"] = map[string]any{"zip": texts.Draw(t, "zip")}
			}
			if rapid.Bool().Draw(t, "tags") {
				input["tags"] = []any{json.Number("1.0"), texts.Draw(t, "tag"), map[string]any{}}
			}
			return input
		}), 1, 5).Draw(t, "inputs")
		columns := newColumnSet()
		for _, input := range inputs {
			columns.addLeaves(input)
		}
		var file bytes.Buffer
		w, err := newFailedTable(&file, columns.names)
		require.NoError(t, err)
		for i, input := range inputs {
			row, name := int32(i+2), "a.csv"
			require.NoError(t, w.write(&itemResult{input: input, rowNumber: &row, fileName: &name, errorMessage: "-"}))
		}
		require.NoError(t, w.flush())
		items, err := readAll("failed.csv", &file)
		require.NoError(t, err)
		require.Len(t, items, len(inputs))
		for i, it := range items {
			require.Empty(t, it.faults)
			require.Empty(t, cmp.Diff(inputs[i], it.input))
		}
	})
}
