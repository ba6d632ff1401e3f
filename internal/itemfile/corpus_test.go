package itemfile

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
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"tranche/internal/exactjson"
)

var update = flag.Bool("update", false, "write the golden files")

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
	r, err := Open(filepath.Base(path), bytes.NewReader(content), schema.(map[string]any))
	for err == nil {
		var it Item
		if it, err = r.Next(); err != nil {
			break
		}
		it.Read()
		input, encodeErr := exactjson.Encode(it.Input)
		require.NoError(t, encodeErr)
		line := map[string]any{"row": it.Row, "input": json.RawMessage(input)}
		if len(it.Faults) > 0 {
			line["error"] = messageOf(&it)
		}
		text, encodeErr := json.Marshal(line)
		require.NoError(t, encodeErr)
		out.Write(append(text, '\n'))
	}
	if closer, ok := r.(io.Closer); ok && closer != (*tableReader)(nil) {
		require.NoError(t, closer.Close())
	}
	if !errors.Is(err, io.EOF) {
		broken, ok := errors.AsType[*Error](err)
		require.True(t, ok, "%v", err)
		out.WriteString("broken: " + broken.Error() + "\n")
	}
	return out.String()
}

// messageOf is what the item's execution says of its faults.
func messageOf(it *Item) string {
	var faults []string
	for _, d := range it.Faults {
		faults = append(faults, strings.TrimPrefix(d.Field+": "+d.Message, ": "))
	}
	return fmt.Sprintf("%s, row %d: %s", it.FileName, it.Row, strings.Join(faults, "; "))
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
