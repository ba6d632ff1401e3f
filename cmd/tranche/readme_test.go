package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
)

// TestReadme runs the commands of the README's walk blocks with bash and curl, and
// compares the response with the one in the README.
func TestReadme(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"bash", "curl", "grep", "cut", "head", "sleep"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the commands of the README need %s, which is not installed", tool)
		}
	}
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	blocks := fenced(string(readme), "sh walk")
	require.Len(t, blocks, 5)

	e := onDatabase(pgtest.URL(t))
	server := e.serve(t)
	defer server.stop(t)
	here := t.TempDir() // the commands create a client.json
	samples, err := filepath.Abs("../../testdata")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(samples, filepath.Join(here, "testdata")))

	const mark = "---- end of block ----"
	script := "set -euo pipefail\n" + strings.Join(blocks, "\necho; echo '"+mark+"'\n")
	script = strings.NewReplacer("go run ./cmd/tranche", "'"+binary+"'", "http://127.0.0.1:8080", server.url).Replace(script)
	command := exec.CommandContext(t.Context(), "bash", "-c", script)
	command.Dir, command.WaitDelay = here, 10*time.Second
	command.Env = append(os.Environ(), e...)
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	require.NoError(t, err, "%s\n%s", output, stderr.String())
	outputs := strings.Split(string(output), mark)
	require.Len(t, outputs, len(blocks))

	require.Contains(t, outputs[1], `"active"`)
	shown := fenced(string(readme), "json")
	require.Len(t, shown, 1)
	require.Empty(t, cmp.Diff(withoutID(t, shown[0]), withoutID(t, outputs[2])))
	require.Contains(t, outputs[3], `"complete"`)
	for _, file := range []string{"results.csv", "results.jsonl", "failed.csv", "manifest.json"} {
		require.Contains(t, outputs[4], file)
	}
}

// fenced returns the code blocks of a Markdown text that begin with ```info.
func fenced(text, info string) []string {
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+info+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// withoutID decodes a response without its execution id.
func withoutID(t *testing.T, text string) map[string]any {
	t.Helper()
	var answer map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&answer), text)
	delete(answer, "executionId")
	return answer
}
