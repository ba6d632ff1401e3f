package main_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/testdata"
)

// TestGeneratedApplications compares the committed file with its generator.
func TestGeneratedApplications(t *testing.T) {
	t.Parallel()
	source, err := filepath.Abs("../../testdata/generate.go")
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), "go", "run", source)
	command.Dir = t.TempDir()
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	made, err := os.ReadFile(filepath.Join(command.Dir, "loan-applications.csv"))
	require.NoError(t, err)
	require.True(t, string(made) == string(testdata.Applications), "run: go generate ./testdata")
}

// demoTimeMax is how long a whole demo may take on a busy machine.
const demoTimeMax = 3 * time.Minute

// demoResults are the lines of a demo's results.jsonl by application, and how
// often each decision was made.
func demoResults(t *testing.T, dir string) (items, decisions map[string]int) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "output", "*", "results.jsonl"))
	require.NoError(t, err)
	require.Len(t, paths, 1)
	file, err := os.Open(paths[0])
	require.NoError(t, err)
	defer file.Close()
	items, decisions = map[string]int{}, map[string]int{}
	decoder := json.NewDecoder(file)
	for decoder.More() {
		var line struct {
			ExecutionID string
			Status      string
			Output      struct{ Decision string }
		}
		require.NoError(t, decoder.Decode(&line))
		items[line.ExecutionID]++
		if line.Output.Decision != "" {
			decisions[line.Output.Decision]++
		} else {
			decisions[line.Status]++
		}
	}
	return items, decisions
}

// number reads a row of the demo's summary table.
func number(t *testing.T, output, row string) string {
	t.Helper()
	found := regexp.MustCompile(`│ ` + row + ` +│ +(\d+) │`).FindStringSubmatch(output)
	require.NotNil(t, found, "%s\n%s", row, output)
	return found[1]
}

func TestDemo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the demo takes half a minute")
	}
	calm, killed := dataDir(t), dataDir(t)
	output := environment{"DATABASE_URL=postgres://nowhere.invalid/x"}.ok(t, "demo", "--exit", "--data-dir", calm)
	for _, step := range []string{
		"underwriting fails without the borrower's consent", "sent a code to ", "signed with the code; the evidence certificate: ",
		"executed underwriting with the signed consent", `"decision": "approve"`,
		"no item begins; resumed it", "corrected failed.csv and uploaded it", "the batch waits and has a notice: TARGET_UNREACHABLE ",
		"restarted the bureau; the batch is complete: ", "retried 89 items of the first batch (attempt 2) with ",
	} {
		require.Contains(t, output, step)
	}
	require.Equal(t, "2000", number(t, output, "applications"))
	items, want := demoResults(t, calm)
	require.Len(t, items, 2000)
	for _, decision := range []string{"approve", "refer", "decline", "failed"} {
		require.Positive(t, want[decision], decision)
	}

	// The same, killed in the middle of the batch and started again.
	killDemo(t, killed)
	output = environment{}.ok(t, "demo", "--exit", "--data-dir", killed)
	require.Contains(t, output, "found the batch of an interrupted run")
	require.Equal(t, "2000", number(t, output, "applications"))
	items, got := demoResults(t, killed)
	require.Len(t, items, 2000)
	for id, times := range items {
		require.Equal(t, 1, times, id)
	}
	require.Equal(t, want, got, "no decision hangs on the kill")
}

// killDemo starts a demo and kills it without warning when its batch is on its way.
func killDemo(t *testing.T, dir string) {
	t.Helper()
	command := environment{}.command("demo", "--exit", "--data-dir", dir)
	stdout, err := command.StdoutPipe()
	require.NoError(t, err)
	var stderr lockedBuffer
	command.Stderr = &stderr
	require.NoError(t, command.Start())
	late := time.AfterFunc(demoTimeMax, func() { _ = command.Process.Kill() })
	defer late.Stop()
	lines, killed := bufio.NewScanner(stdout), false
	for lines.Scan() {
		if !killed && strings.Contains(lines.Text(), "  processing ") {
			require.NoError(t, command.Process.Kill())
			killed = true
		}
	}
	_, _ = io.Copy(io.Discard, stdout)
	_ = command.Wait() // it was killed
	require.True(t, killed, "it ended before: %s", stderr.String())
	state, err := os.ReadFile(filepath.Join(dir, "demo.json"))
	require.NoError(t, err)
	require.Contains(t, string(state), "batchId")
}
