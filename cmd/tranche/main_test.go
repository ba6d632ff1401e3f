package main_test

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/secret"
)

// binary is the path of the program. TestMain builds it once for all tests.
var binary string

// parallelTests is the number of tests that run at the same time. Most of them wait for
// other processes, so it does not depend on the number of processors.
const parallelTests = "8"

func TestMain(m *testing.M) {
	flag.Parse()
	isSet := false
	flag.Visit(func(f *flag.Flag) { isSet = isSet || f.Name == "test.parallel" })
	if !isSet {
		if err := flag.Set("test.parallel", parallelTests); err != nil {
			panic(err)
		}
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tranche-test-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "tranche")
	if output, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s", output)
		return 1
	}
	return m.Run()
}

// environment holds the environment variables of the program, as name=value.
type environment []string

// onDatabase returns the environment of an installation on an existing database.
func onDatabase(url string) environment {
	return environment{"DATABASE_URL=" + url, "TRANCHE_MASTER_KEY=" + secret.GenerateKey()}
}

func (e environment) with(more ...string) environment {
	return append(append(environment{}, e...), more...)
}

func (e environment) command(args ...string) *exec.Cmd {
	command := exec.Command(binary, args...)
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		command.Env = append(command.Env, name+"="+os.Getenv(name))
	}
	command.Env = append(command.Env, e...)
	return command
}

type result struct {
	stdout, stderr string
	status         int
}

// run executes a command to its end.
func (e environment) run(t *testing.T, args ...string) result {
	t.Helper()
	command := e.command(args...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	got := result{stdout.String(), stderr.String(), command.ProcessState.ExitCode()}
	require.NotContains(t, got.stderr, "goroutine ", "no stack traces")
	return got
}

// ok executes a command that must succeed, and returns its output.
func (e environment) ok(t *testing.T, args ...string) string {
	t.Helper()
	got := e.run(t, args...)
	require.Zero(t, got.status, got.stderr)
	return got.stdout
}

// dataDir returns a data directory that does not exist yet. t.TempDir does not work: for
// root, PostgreSQL runs as another user, who cannot read it.
func dataDir(t *testing.T) string {
	t.Helper()
	parent, err := os.MkdirTemp("", "tranche-own-") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	require.NoError(t, os.Chmod(parent, 0o755))
	return filepath.Join(parent, "data")
}

// readyTimeMax limits the wait for a service to become ready or to stop. It only decides
// how long a failing test takes.
const readyTimeMax = 2 * time.Minute

// running is a running `tranche serve`.
type running struct {
	url    string
	first  string // the first line on stdout
	lines  chan string
	cmd    *exec.Cmd
	ended  chan error
	mu     sync.Mutex
	out    strings.Builder // stdout, guarded by mu
	stderr lockedBuffer
}

// serve starts the service on a free port and waits until it is ready.
func (e environment) serve(t *testing.T, args ...string) *running {
	t.Helper()
	r := e.startServe(t, args...)
	r.awaitReady(t)
	return r
}

// startServe starts the service on a free port.
func (e environment) startServe(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{
		cmd:   e.with("TRANCHE_ADDR=127.0.0.1:0").command(append([]string{"serve"}, args...)...),
		lines: make(chan string, 16), ended: make(chan error, 1),
	}
	stdout, err := r.cmd.StdoutPipe()
	require.NoError(t, err)
	r.cmd.Stderr = &r.stderr
	require.NoError(t, r.cmd.Start())
	go func() {
		scanner := bufio.NewScanner(stdout)
		for scanner.Scan() {
			r.lines <- scanner.Text()
		}
		close(r.lines)
		r.ended <- r.cmd.Wait()
	}()
	t.Cleanup(func() { _ = r.cmd.Process.Kill() }) // it may have ended
	return r
}

// awaitReady waits until the service is ready.
func (r *running) awaitReady(t *testing.T) {
	t.Helper()
	select {
	case line, ok := <-r.lines:
		require.True(t, ok, "the service ended: %s", r.stderr.String())
		r.first = line
	case <-time.After(readyTimeMax):
		require.Fail(t, "the service is not ready", r.stderr.String())
	}
	var found bool
	r.url, found = strings.CutPrefix(r.first, "listening on ")
	require.True(t, found, r.first)
	go func() {
		for line := range r.lines {
			r.mu.Lock()
			r.out.WriteString(line + "\n")
			r.mu.Unlock()
		}
	}()
}

// awaitLog waits until the log contains text.
func (r *running) awaitLog(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(r.stderr.String(), text) }, readyTimeMax, 10*time.Millisecond, text)
}

// stop ends the service as an operator does. It must exit with 0.
func (r *running) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-r.ended:
		require.NoError(t, err, r.stderr.String())
	case <-time.After(readyTimeMax):
		require.Fail(t, "the service did not stop", r.stderr.String())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Empty(t, r.out.String(), "stdout has only one line")
}

// lockedBuffer is a buffer for concurrent use.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
