package batch_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// oddItem is a line of testdata/files/expected: an item of a file.
type oddItem struct {
	Row   int             `json:"row"`
	Input json.RawMessage `json:"input"`
	Error string          `json:"error"`
}

// readExpected reads the expected items of a file, and the expected fault of the file; empty if
// it has none.
func readExpected(t *testing.T, path string) (items []oddItem, broken string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if reason, isBroken := strings.CutPrefix(line, "broken: "); isBroken {
			return items, reason
		}
		var item oddItem
		require.NoError(t, json.Unmarshal([]byte(line), &item))
		items = append(items, item)
	}
	return items, ""
}

// Every file of the corpus gives the expected items and faults. A file that breaks off fails the
// batch without an item; a broken row fails alone.
func TestFileCorpusOverHTTP(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, `{"name": "Odd", "alias": "odd", "inputSchema": {"type": "object", "properties": {
			"id": {"type": "string"}, "name": {"type": "string"}, "amount": {"type": "number"}, "active": {"type": "boolean"},
			"born": {"type": "string", "format": "date"}, "seen": {"type": "string", "format": "date-time"},
			"tags": {"type": "array"}, "address": {"type": "object", "properties": {"zip": {"type": "string"}}}}},
		"tasks": [{"id": "same", "type": "transform", "config": {"fields": {"id": "{{ input.id }}"}}}], "edges": []}`)
	const corpus = "../../testdata/files"
	expected, err := filepath.Glob(filepath.Join(corpus, "expected", "*.txt"))
	require.NoError(t, err)
	require.Greater(t, len(expected), 40)
	for _, path := range expected {
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(filepath.Join(corpus, name))
			require.NoError(t, err)
			items, broken := readExpected(t, path)
			if name == "dates.xlsx" { // the schema's to refuse, of which the expected items do not know
				items[2].Error = "dates.xlsx, row 4: born: must be a valid date"
			}
			failed, firstError := 0, ""
			for _, item := range items {
				if item.Error != "" {
					if failed++; failed == 1 {
						firstError = item.Error
					}
				}
			}
			r := follow(t, c, start(t, c, "odd", map[string]any{"attachmentFileNames": []string{upload(t, c, name, string(content))}}))
			switch {
			case broken != "":
				require.Equal(t, "pre_processing_failed", r.Status)
				require.Equal(t, "failed: "+broken, r.Outputs.Pre.Result)
				require.Equal(t, [4]int{}, counts(r))
				return
			case len(items) == 0:
				require.Equal(t, "failed: "+name+": there is no item in it", r.Outputs.Pre.Result)
				return
			case failed == len(items):
				require.Equal(t, "failed: no item matches the input schema; the first: "+firstError, r.Outputs.Pre.Result)
				require.Equal(t, [4]int{failed, 0, failed, 0}, counts(r))
				return
			}
			require.Equal(t, "complete", r.Status)
			require.Equal(t, [4]int{len(items), len(items) - failed, failed, 0}, counts(r))
			lines := strings.Split(strings.TrimSpace(files(t, c, *r.Outputs.Post.PackageID)["results.jsonl"]), "\n")
			require.Len(t, lines, len(items))
			for i, line := range lines {
				var got struct {
					RowNumber      int
					SourceFileName string
					Input          json.RawMessage
					ErrorMessage   *string
				}
				require.NoError(t, json.Unmarshal([]byte(line), &got))
				require.Equal(t, items[i].Row, got.RowNumber)
				require.Equal(t, name, got.SourceFileName)
				require.Equal(t, string(items[i].Input), string(got.Input))
				if items[i].Error != "" {
					require.Equal(t, items[i].Error, *got.ErrorMessage)
				}
			}
		})
	}
}
