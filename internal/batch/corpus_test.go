package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"tranche/internal/exactjson"
)

const corpus = "../../testdata/files"

const corpusSchema = `{"type": "object", "properties": {
	"id": {"type": "string"}, "name": {"type": "string"}, "amount": {"type": "number"}, "active": {"type": "boolean"},
	"born": {"type": "string", "format": "date"}, "seen": {"type": "string", "format": "date-time"},
	"tags": {"type": "array"}, "address": {"type": "object", "properties": {"zip": {"type": "string"}}}}}`

// readFile is what a file of items gives, a line each: its items, then why the
// rest cannot be read.
func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	schema, err := exactjson.Decode([]byte(corpusSchema))
	require.NoError(t, err)
	var out strings.Builder
	r, err := openItems(filepath.Base(path), bytes.NewReader(content), schema.(map[string]any))
	for err == nil {
		var it item
		if it, err = r.next(); err != nil {
			break
		}
		it.read()
		input, encodeErr := exactjson.Encode(it.input)
		require.NoError(t, encodeErr)
		line := map[string]any{"row": it.row, "input": json.RawMessage(input)}
		if len(it.faults) > 0 {
			text, encodeErr := refusal(&it, it.faults)
			require.NoError(t, encodeErr)
			var result struct{ ErrorMessage string }
			require.NoError(t, json.Unmarshal([]byte(text), &result))
			line["error"] = result.ErrorMessage
		}
		text, encodeErr := json.Marshal(line)
		require.NoError(t, encodeErr)
		out.Write(append(text, '\n'))
	}
	if closer, ok := r.(io.Closer); ok && closer != (*tableReader)(nil) {
		require.NoError(t, closer.Close())
	}
	if !errors.Is(err, io.EOF) {
		broken, ok := errors.AsType[*FileError](err)
		require.True(t, ok, "%v", err)
		out.WriteString("broken: " + broken.Error() + "\n")
	}
	return out.String()
}

// Every odd file gives the items and the faults that its neighbour
// testdata/files/expected/NAME.txt says.
func TestOddFiles(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(corpus)
	require.NoError(t, err)
	for _, entry := range entries {
		if _, _, ok := formatOf(entry.Name()); !ok {
			continue
		}
		t.Run(entry.Name(), func(t *testing.T) {
			t.Parallel()
			got := readFile(t, filepath.Join(corpus, entry.Name()))
			golden := filepath.Join(corpus, "expected", entry.Name()+".txt")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(string(want), got))
		})
	}
}
