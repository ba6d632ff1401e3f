package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// childVariable makes the test binary open the server of the given directory until its standard
// input ends.
const childVariable = "TRANCHE_EMBEDDED_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		if err := beChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func beChild(dir string) error {
	server, err := Open(context.Background(), Options{Dir: dir, Volatile: true})
	if err != nil {
		return err
	}
	fmt.Println(server.URL())
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, server.Close())
}

// child is another process that has opened the server of a directory.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
}

// startChild starts a child and waits until it has opened the server. If uid is not 0, the child
// runs as that user.
func startChild(t *testing.T, dir string, uid uint32) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), programFor(t, uid))
	cmd.Env = append(os.Environ(), childVariable+"="+dir, "HOME=/nonexistent")
	cmd.Dir = "/"
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	c := &child{cmd: cmd, stdin: stdin}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err, "the child did not start")
	c.url = strings.TrimSpace(line)
	return c
}

// programFor returns a copy of the test binary that the user may run. Other users cannot enter the
// directory of go test.
func programFor(t *testing.T, uid uint32) string {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	if uid == 0 {
		return program
	}
	content, err := os.ReadFile(program)
	require.NoError(t, err)
	copied := filepath.Join(openDir(t), "embedded.test")
	require.NoError(t, os.WriteFile(copied, content, 0o755))
	return copied
}

func (c *child) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, c.stdin.Close())
	require.NoError(t, c.cmd.Wait())
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, c.cmd.Process.Kill())
	require.Error(t, c.cmd.Wait())
}

// openDir returns a directory that every user may enter. The user of root's server cannot enter
// t.TempDir.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tranche-embedded-") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o711))
	return dir
}

// open opens the server of a directory and closes it with the test.
func open(t *testing.T, options Options) *Server {
	t.Helper()
	options.Volatile = true
	server, err := Open(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return server
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	require.NoError(t, try(t.Context(), url, sql))
}

func try(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

func query[T any](t *testing.T, url, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	var value T
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&value))
	return value
}

// postmaster returns the process id in postmaster.pid.
func postmaster(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "postgres", "postmaster.pid"))
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	require.NoError(t, err)
	return pid
}

// ended reports whether a process has ended. A zombie has ended.
func ended(pid int) bool {
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err != nil || strings.HasPrefix(string(state), "Z")
}

func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, 30*time.Second, 20*time.Millisecond, what)
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root drops to another user; CI runs this as root too")
	}
}

func uidOf(t *testing.T, name string) uint32 {
	t.Helper()
	found, err := osuser.Lookup(name)
	require.NoError(t, err)
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	require.NoError(t, err)
	return uint32(uid)
}
