package main_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/testdata"
)

// The committed file of applications is the output of its generator.
func TestGeneratedApplications(t *testing.T) {
	t.Parallel()
	source, err := filepath.Abs("../../testdata/generate.go")
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), "go", "run", source)
	command.Dir = t.TempDir()
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	generated, err := os.ReadFile(filepath.Join(command.Dir, "loan-applications.csv"))
	require.NoError(t, err)
	require.True(t, string(generated) == string(testdata.Applications), "run: go generate ./testdata")
}

// demoDecisions are the decisions of the demo's batch. They depend only on the file of
// applications and the bureau's seed.
var demoDecisions = map[string]int{"approve": 801, "refer": 581, "decline": 543, "failed": 75}

// The demo is killed while its batch runs. The next run completes the batch: each
// application gets one decision, as without the kill.
func TestDemo(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	env := environment{"DATABASE_URL=postgres://nowhere.invalid/x"} // the demo ignores it
	output := killDemo(t, env, dir)
	for _, step := range []string{
		"underwriting fails without the borrower's consent", "sent a code to ", "signed with the code; the evidence certificate: ",
		"executed underwriting with the signed consent", `"decision": "approve"`, "no item begins; resumed it",
	} {
		require.Contains(t, output, step)
	}
	output = env.ok(t, "demo", "--exit", "--data-dir", dir)
	for _, step := range []string{
		"found the batch of an interrupted run", "corrected failed.csv and uploaded it", "the batch waits and has a notice: TARGET_UNREACHABLE ",
		"restarted the bureau; the batch is complete: ", "retried 89 items of the first batch (attempt 2) with ",
	} {
		require.Contains(t, output, step)
	}
	require.Regexp(t, `│ applications +│ +2000 │`, output)
	decisions := demoResults(t, dir)
	require.Equal(t, demoDecisions, decisions)
}

// killDemo starts the demo and kills it while its batch runs. It returns the output.
func killDemo(t *testing.T, env environment, dir string) string {
	t.Helper()
	command := env.command("demo", "--exit", "--data-dir", dir)
	stdout, err := command.StdoutPipe()
	require.NoError(t, err)
	var stderr lockedBuffer
	command.Stderr = &stderr
	require.NoError(t, command.Start())
	t.Cleanup(func() { _ = command.Process.Kill() }) // it may have ended
	var output strings.Builder
	lines, isKilled := bufio.NewScanner(stdout), false
	for lines.Scan() {
		output.WriteString(lines.Text() + "\n")
		if !isKilled && strings.Contains(lines.Text(), "  processing ") {
			require.NoError(t, command.Process.Kill())
			isKilled = true
		}
	}
	_ = command.Wait() // it was killed
	require.True(t, isKilled, "the demo ended before its batch: %s%s", output.String(), stderr.String())
	state, err := os.ReadFile(filepath.Join(dir, "demo.json"))
	require.NoError(t, err)
	require.Contains(t, string(state), "batchId")
	return output.String()
}

// demoResults reads results.jsonl of the demo's batch. It must have one line for each
// application. It returns the number of each decision, and of failed applications.
func demoResults(t *testing.T, dir string) map[string]int {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "output", "*", "results.jsonl"))
	require.NoError(t, err)
	require.Len(t, paths, 1)
	file, err := os.Open(paths[0])
	require.NoError(t, err)
	defer file.Close()
	ids, decisions := map[string]bool{}, map[string]int{}
	decoder := json.NewDecoder(file)
	for decoder.More() {
		var line struct {
			ExecutionID string
			Status      string
			Output      struct{ Decision string }
		}
		require.NoError(t, decoder.Decode(&line))
		require.False(t, ids[line.ExecutionID], "%s has two lines", line.ExecutionID)
		ids[line.ExecutionID] = true
		if line.Output.Decision != "" {
			decisions[line.Output.Decision]++
		} else {
			decisions[line.Status]++
		}
	}
	require.Len(t, ids, 2000)
	return decisions
}
