package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/exactjson"
	"tranche/internal/itemfile"
	"tranche/queries"
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

func decodeObject(text string) map[string]any {
	value, err := exactjson.Decode([]byte(text))
	if err != nil {
		panic(err)
	}
	return value.(map[string]any)
}

func someResults() []queries.BatchItemsListResultsRow {
	file := "=loans.csv"
	row := func(n int32) *int32 { return &n }
	return []queries.BatchItemsListResultsRow{
		{
			ItemIndex: 0, RowNumber: row(2), SourceFileName: &file, ID: uuid.MustParse("0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"),
			Status: "completed", StatusCode: row(200),
			Input:  []byte(`{"name":"Zoë, \"Z\"","amount":1000.10,"address":{"zip":"01234"},"tags":[1.10,"x"]}`),
			Result: []byte(`{"isSuccess":true,"statusCode":200,"output":{"decision":"=approve","rate":-0.0450,"terms":{"months":36},"none":null,"empty":{}},"customOutput":null,"notes":[],"notices":[],"errorMessage":null}`),
		},
		{
			ItemIndex: 1, RowNumber: row(3), SourceFileName: &file, ID: uuid.MustParse("0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12"),
			Status: "failed", StatusCode: row(422),
			Input:  []byte(`{"name":"'=x","amount":"-abc","months":-5,"owner":true}`),
			Result: []byte(`{"isSuccess":false,"statusCode":422,"output":{},"customOutput":null,"notes":[],"notices":[],"errorMessage":"=loans.csv, row 3: amount: is not a number"}`),
		},
		{
			ItemIndex: 2, ID: uuid.MustParse("0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13"), Status: "failed", StatusCode: row(500),
			Input: []byte(`{}`), Result: []byte(`{"isSuccess":false,"statusCode":500,"output":{},"errorMessage":"\t@"}`),
		},
	}
}

func TestReportsAreAsExpected(t *testing.T) {
	t.Parallel()
	inputs := []string{"name", "amount", "months", "address.zip", "tags", "owner"}
	outputs := []string{"decision", "rate", "terms.months", "none", "empty"}
	page := newReportPage(inputs, outputs)
	require.NoError(t, page.writeHeaders())
	rows := someResults()
	for i := range rows {
		it, err := newItemResult(&rows[i])
		require.NoError(t, err)
		require.NoError(t, page.write(it))
	}
	require.NoError(t, page.flush())
	require.Equal(t, [...]int32{3, 3, 2}, page.rows)
	for position, name := range []string{"results.csv", "results.jsonl", "failed.csv"} {
		golden(t, name, page.texts[position].Bytes())
	}
}

// Pages are as long as the items of the page before are short, so that a few of
// them fit into memory whatever the items are.
func TestPagesAreBounded(t *testing.T) {
	t.Parallel()
	r := report{pages: sync.Pool{New: func() any { return newReportPage([]string{"note"}, nil) }}}
	require.EqualValues(t, pageItemsFirst, r.pageItems())
	for _, test := range []struct{ bytes, items int }{{1, pageItemsMax}, {100_000, 41}, {pageBytesMax + 1, 1}, {1000, pageItemsMax}} {
		rows := make([]queries.BatchItemsListResultsRow, 3)
		for i := range rows {
			rows[i].Input, rows[i].Result = []byte(`{"note":"`+strings.Repeat("x", test.bytes)+`"}`), []byte(`{"output":{}}`)
		}
		_, err := r.format(rows)
		require.NoError(t, err)
		require.EqualValues(t, test.items, r.pageItems())
	}
	_, err := r.format(nil)
	require.NoError(t, err)
	require.EqualValues(t, pageItemsMax, r.pageItems())
}

// The memory of a page that became too large is not kept for the next.
func TestLargePagesAreNotUsedAgain(t *testing.T) {
	t.Parallel()
	made := 0
	r := report{files: [...]*reportFile{{}, {}, {}, {}}, pages: sync.Pool{New: func() any {
		made++
		return newReportPage(nil, nil)
	}}}
	for range 3 {
		page, _ := r.pages.Get().(*reportPage)
		page.texts[resultsJSONLFile].Grow(2*pageBytesMax + 1)
		require.NoError(t, r.write(page))
	}
	require.Equal(t, 3, made)
}

// readFailed reads what failed.csv holds.
func readFailed(file io.Reader) ([]itemfile.Item, error) {
	r, err := itemfile.Open("failed.csv", file, decodeObject(`{"properties": {
		"name": {"type": "string"}, "amount": {"type": "number"}, "tags": {"type": "array"},
		"address": {"type": "object", "properties": {"zip": {"type": "string"}}}}}`))
	if err != nil {
		return nil, err
	}
	var items []itemfile.Item
	for {
		it, err := r.Next()
		if errors.Is(err, io.EOF) {
			return items, nil
		}
		if err != nil {
			return nil, err
		}
		it.Read()
		items = append(items, it)
	}
}

// What failed.csv holds reads back as the input that was stored.
func TestFailedTableReadsBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.StringMatching("'{0,2}[=+@\t;-]?[a-z\r\n\"',;|é ]{1,5}")
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
		columns := itemfile.NewColumns()
		for _, input := range inputs {
			columns.AddLeaves(input)
		}
		var file bytes.Buffer
		w := newFailedTable(&file, columns.Names())
		require.NoError(t, w.writeHeader())
		for i, input := range inputs {
			row, name := int32(i+2), "a.csv"
			text, err := exactjson.Encode(input)
			require.NoError(t, err)
			require.NoError(t, w.write(&itemResult{input: text, rowNumber: &row, fileName: &name, errorMessage: "-"}))
		}
		require.NoError(t, w.flush())
		items, err := readFailed(&file)
		require.NoError(t, err)
		require.Len(t, items, len(inputs))
		for i, it := range items {
			require.Empty(t, it.Faults)
			require.Empty(t, cmp.Diff(inputs[i], it.Input))
		}
	})
}

// As many columns as a table may have come back in failed.csv, which has some of
// its own.
func TestFailedTableReadsBackWithAllColumns(t *testing.T) {
	t.Parallel()
	names := make([]string, itemfile.ColumnsMax)
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
	}
	var file bytes.Buffer
	table := newFailedTable(&file, names)
	require.NoError(t, table.writeHeader())
	require.NoError(t, table.write(&itemResult{input: []byte(`{"c0":"x","c999":"y"}`), errorMessage: "no"}))
	require.NoError(t, table.flush())
	items, err := readFailed(&file)
	require.NoError(t, err)
	require.Equal(t, []itemfile.Item{{FileName: "failed.csv", Row: 2, Input: map[string]any{"c0": "x", "c999": "y"}}}, items)
}
