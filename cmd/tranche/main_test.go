package main_test

import (
	"bufio"
	"bytes"
	"errors"
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

// binary is the program, built once for all tests.
var binary string

func TestMain(m *testing.M) {
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

// environment is what a test gives to the program, name=value.
type environment []string

// onDatabase is the environment of an installation on somebody's database.
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

// dataDir returns a data directory for an own server, which does not exist yet.
// Root's server runs as another user, to whom t.TempDir is closed.
func dataDir(t *testing.T) string {
	t.Helper()
	parent, err := os.MkdirTemp("", "tranche-own-") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	require.NoError(t, os.Chmod(parent, 0o755))
	return filepath.Join(parent, "data")
}

// running is a `tranche serve` that answers.
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
	r := e.beginServe(t, args...)
	r.awaitReady(t)
	return r
}

// beginServe starts the service on a free port.
func (e environment) beginServe(t *testing.T, args ...string) *running {
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
	t.Cleanup(func() { _ = r.cmd.Process.Kill() }) // an error when it has ended
	return r
}

// awaitReady waits until the service answers.
func (r *running) awaitReady(t *testing.T) {
	t.Helper()
	select {
	case line, ok := <-r.lines:
		require.True(t, ok, "it ended: %s", r.stderr.String())
		r.first = line
	case <-time.After(60 * time.Second):
		require.Fail(t, "not ready in time", r.stderr.String())
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

// stop ends the service as an operator does, and checks that it ends well.
func (r *running) stop(t *testing.T) {
	t.Helper()
	begun := time.Now()
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-r.ended:
		require.NoError(t, err, r.stderr.String())
	case <-time.After(30 * time.Second):
		require.Fail(t, "it did not stop within 30 s", r.stderr.String())
	}
	t.Logf("stopped in %s", time.Since(begun))
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Empty(t, r.out.String(), "stdout has one line")
}

// lockedBuffer collects what a process writes while others read it.
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
